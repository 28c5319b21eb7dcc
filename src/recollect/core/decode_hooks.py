"""The two hooks of generation: what device code that decodes offers, and what it may ask of a reader.

`core.dispatch` knows them as "decode_step" (a step that is repeated: recorded and compiled) and "decode_loop" (choosing
and reading many ids without returning to Python). Where nothing is registered, generation reads with the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory

Turn: TypeAlias = tuple[list[int], list[float]]  # of each row: the id, −1 where it had ended, and log p


class DecodeStep(Protocol):
    """A step that is repeated on tensors that stay where they are."""

    @property
    def has_valid(self) -> bool:
        """Whether it is told which rows are valid."""
        ...

    def __call__(self, ids: Tensor, valid: Tensor | None) -> Tensor:
        """Read one id (B,) in each row and return logits (B, V), which the next call overwrites."""
        ...

    def load(self, memory: Memory) -> None:
        """Continue from a memory."""
        ...

    def memory(self) -> Memory:
        """Return the memory itself: later steps write into it."""
        ...


class DecodeSteps(Protocol):
    """The repeated steps of one generation."""

    def find(self, owner: object, memory: Memory, rows: int, has_valid: bool) -> DecodeStep | None:
        """Return a step that continues from a memory, nobody else's while its owner lives."""
        ...


class DecodeReader(Protocol):
    """What a loop asks of the reader whose memory and logits it moves forward."""

    model: SequenceLayer[Any]
    modules: Sequence[nn.Module]
    device: torch.device
    logits: Tensor
    room: float

    @property
    def memory(self) -> Memory:
        """What is remembered now."""
        ...

    def read_chosen(self, ids: list[int]) -> None:
        """Read what was chosen in each row, nothing where it is −1."""
        ...

    def ready_step(self, is_next: bool) -> DecodeStep | None:
        """Return the repeated step in use; `is_next`: or the one for another id, with room for it."""
        ...

    def resume_from(self, memory: Callable[[], Memory], logits: Tensor) -> None:
        """Take over what somebody else has read; the memory is asked for when it is needed."""
        ...


class DecodeLoop(Protocol):
    """Chooses and reads many ids at once."""

    def take(
        self, unread: list[int] | None, most: int, left: int, active: list[bool]
    ) -> tuple[list[Turn], list[int] | None]:
        """Take at most `most` turns of those `left`; return them, and the ids that are unread after them.

        `unread` are ids that were chosen and not read yet. No turns: the caller takes one itself.
        """
        ...
