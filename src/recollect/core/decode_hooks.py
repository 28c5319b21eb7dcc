"""The two hooks of generation: the protocols of device code that decodes, and of the reader that it works on.

`core.dispatch` knows them as "decode_step" (a step that is recorded and compiled once, then repeated) and "decode_loop"
(many ids chosen and read without returning to Python). Where nothing is registered, generation calls the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from recollect.core.memory import Memory
from recollect.core.types import AnyLayer

Turn: TypeAlias = tuple[list[int], list[float]]  # per row: the id, −1 where it had ended, and log p


class DecodeStep(Protocol):
    """A step that is repeated on tensors at fixed addresses."""

    @property
    def has_valid(self) -> bool:
        """Whether it takes a mask of valid rows."""
        ...

    def __call__(self, ids: Tensor, valid: Tensor | None) -> Tensor:
        """Read one id (B,) in each row and return logits (B, V), which the next call overwrites."""
        ...

    def load(self, memory: Memory) -> None:
        """Continue from a memory."""
        ...

    def memory(self) -> Memory:
        """Return the memory, not a copy: later steps write into it."""
        ...


class DecodeSteps(Protocol):
    """The repeated steps of one generation."""

    def find(self, owner: object, memory: Memory, rows: int, has_valid: bool) -> DecodeStep | None:
        """Return a step that continues from a memory, used by no other owner while this one lives."""
        ...


class DecodeReader(Protocol):
    """What a decode loop needs of the reader whose memory and logits it advances."""

    model: AnyLayer
    modules: Sequence[nn.Module]
    device: torch.device
    logits: Tensor
    slots_left: float  # steps reserved and not yet read

    @property
    def memory(self) -> Memory:
        """The memory after all ids read."""
        ...

    def read_chosen(self, ids: list[int]) -> None:
        """Read the id chosen in each row, nothing where it is −1."""
        ...

    def ready_step(self, is_next: bool) -> DecodeStep | None:
        """Return the repeated step in use, if any; with `is_next` one that has a slot reserved for another id."""
        ...

    def resume_from(self, memory: Callable[[], Memory], logits: Tensor) -> None:
        """Continue after the ids that a decode loop has read; `memory` is called when its result is needed."""
        ...


class DecodeLoop(Protocol):
    """Chooses and reads many ids in one call."""

    def take(
        self, unread: list[int] | None, most: int, left: int, active: list[bool]
    ) -> tuple[list[Turn], list[int] | None]:
        """Generate at most `most` of the `left` steps; return them, and the ids that are unread after them.

        `unread` are ids that were chosen and not yet read. An empty list: the caller generates a step itself.
        """
        ...
