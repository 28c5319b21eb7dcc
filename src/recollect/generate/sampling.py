"""One id at a time, in many rows at once: greedy and sampled.

    for step in stream(model, prompts, Settings(tokens=40, top_p=0.9)):
        step.ids  # (B,)

Each row draws from a generator of its own, seeded by (seed, the row's number), one number per id. What a row says
therefore depends neither on the batch it is in nor on its place there, as long as it keeps its number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from recollect.entry import ContractError
from recollect.generate.filters import apply_filters, check_logits, draw, likeliest, prohibit
from recollect.generate.reading import Model, Prompts, Reader, alone, undisturbed
from recollect.generate.settings import Settings
from recollect.memory import Memory

Reason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True, eq=False)
class Step:
    """What all rows said at one step, on the CPU. Rows that had ended before say nothing: −1 and 0."""

    ids: Tensor  # (B,)
    logprobs: Tensor  # (B,) log p of these ids, by the model itself: before temperature and filters
    valid: Tensor  # (B,) True where the row said something


@dataclass(frozen=True, eq=False)
class Generation:
    """What one row said, why it ended, and what it remembers.

    `memory` (one row) has read the prompt and all of `ids`; `logits` (V,) are what the model says next. With
    both, `generate(model, [[]], settings, memory, logits=logits[None])` goes on from here.
    """

    ids: list[int]  # a stop id included
    logprobs: list[float]
    reason: Reason
    memory: Memory = field(repr=False)
    logits: Tensor = field(repr=False)


class Stream(Iterator[Step]):
    """An iterator over the steps of a generation; see `stream`. Between steps the model is free for other work."""

    def __init__(
        self,
        model: Model,
        prompts: Prompts,
        settings: Settings | None = None,
        memory: Memory | None = None,
        *,
        logits: Tensor | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        self.settings, self._modules = settings or Settings(), list(model.modules())
        with undisturbed(self._modules), alone(len(prompts)):
            self._reader = Reader(model, prompts, self.settings.tokens, self.settings.begin, memory, logits)
        count = len(self._reader.prompts)
        _check_choices(self.settings, self._reader.logits)
        self._generators = [np.random.default_rng([self.settings.seed, row]) for row in _numbers(rows, count)]
        self._unread: Tensor | None = None  # (B,) ids said but not yet read, −1 for none
        self._said = 0
        going = self.settings.tokens > 0
        self.reasons: list[Reason | None] = [None if going else "length" for _ in range(count)]  # None: not ended

    def __next__(self) -> Step:
        if all(self.reasons):
            raise StopIteration
        active = torch.tensor([reason is None for reason in self.reasons])
        with undisturbed(self._modules), alone(len(self.reasons)):
            self._catch_up()
            ids, logprobs = self._choose(active)
        self._said += 1
        for row, said in enumerate(ids.tolist()):
            if said >= 0 and said in self.settings.stop:
                self.reasons[row] = "stop"
            elif said >= 0 and self._said == self.settings.tokens:
                self.reasons[row] = "length"
        self._unread = ids
        return Step(ids, logprobs, active)

    def halt(self, row: int) -> None:
        """End a row for a reason of the caller's; what it has said stays said."""
        self.reasons[row] = "stop"

    @property
    def memory(self) -> Memory:
        """What is remembered now, after all that was said: a value of its own, which later steps do not change."""
        with undisturbed(self._modules):
            self._catch_up()
        return self._reader.memory.settled().select(slice(None))

    @property
    def logits(self) -> Tensor:
        """(B, V) what the model says next, after all that was said."""
        with undisturbed(self._modules):
            self._catch_up()
        return self._reader.logits.clone()

    def _catch_up(self) -> None:
        """Read what was said. A row that has ended reads its last id, and nothing from then on."""
        if self._unread is not None:
            self._reader.read(self._unread.clamp(min=0), self._unread >= 0)
            self._unread = None

    def _choose(self, active: Tensor) -> tuple[Tensor, Tensor]:
        said = self._reader.logits  # (B, V)
        prohibited = list(self.settings.prohibited)
        if self.settings.greedy:
            ids = likeliest(said, prohibited)
        else:
            uniform = [g.random() if live else 0.0 for g, live in zip(self._generators, active.tolist(), strict=True)]
            at = torch.tensor(uniform, dtype=torch.float64, device=said.device)
            ids = draw(apply_filters(prohibit(said, prohibited), self.settings), at).clamp(
                max=said.shape[-1] - 1
            )  # ended rows may be NaN
        logprobs = said.log_softmax(dim=-1).gather(-1, ids[:, None])[:, 0]
        ids, logprobs = ids.cpu().masked_fill(~active, -1), logprobs.cpu().masked_fill(~active, 0)
        if not all(map(math.isfinite, logprobs.tolist())) or set(ids.tolist()) & set(prohibited):
            check_logits(prohibit(said, prohibited), active.to(said.device))
        return ids, logprobs


def stream(
    model: Model,
    prompts: Prompts,
    settings: Settings | None = None,
    memory: Memory | None = None,
    *,
    logits: Tensor | None = None,
    rows: Sequence[int] | None = None,
) -> Stream:
    """Go on from many prompts at once, step by step.

    `prompts` are lists of ids of any lengths, read after `memory` where one is given: an encoder's, or a saved one (one
    row for each prompt). A prompt may be empty where `settings.begin` is read before it, or where `logits` (B, V) says
    what the model that wrote `memory` expects next. `rows` are the rows' numbers for the draw, 0, 1, … unless given.
    """
    return Stream(model, prompts, settings, memory, logits=logits, rows=rows)


def generate(
    model: Model,
    prompts: Prompts,
    settings: Settings | None = None,
    memory: Memory | None = None,
    *,
    logits: Tensor | None = None,
    rows: Sequence[int] | None = None,
) -> list[Generation]:
    """Go on from many prompts at once, to the end: what `stream` says, collected."""
    steps = Stream(model, prompts, settings, memory, logits=logits, rows=rows)
    return collect(steps, list(steps))


def collect(steps: Stream, said: list[Step]) -> list[Generation]:
    """Give what each row of an ended stream has said."""
    after, logits = steps.memory, steps.logits
    nothing: Any = [([], [])] * len(steps.reasons)
    return [
        Generation(ids, logprobs, reason or "length", after.select([row]).settled(), logits[row].clone())
        for row, ((ids, logprobs), reason) in enumerate(
            zip(said_by_row(said) if said else nothing, steps.reasons, strict=True)
        )
    ]


def said_by_row(said: list[Step]) -> list[tuple[list[int], list[float]]]:
    """Give the ids that each row said, and log p of each."""
    ids, logprobs = (torch.stack([getattr(step, name) for step in said], dim=1) for name in ("ids", "logprobs"))
    counts = (ids >= 0).sum(1).tolist()
    rows = zip(ids.tolist(), logprobs.tolist(), counts, strict=True)
    return [(row[:count], values[:count]) for row, values, count in rows]


def _numbers(rows: Sequence[int] | None, count: int) -> list[int]:
    numbers = list(range(count)) if rows is None else [int(row) for row in rows]
    if len(numbers) != count or any(number < 0 for number in numbers):
        raise ContractError("rows", numbers, f"{count} numbers, at least 0, one for each prompt")
    return numbers


def _check_choices(settings: Settings, logits: Tensor) -> None:
    for name in ("stop", "prohibited"):
        beyond = [i for i in getattr(settings, name) if i >= logits.shape[-1]]
        if beyond:
            raise ContractError(name, beyond[0], f"ids from 0 to {logits.shape[-1] - 1}")
