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
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from recollect.core.decode_hooks import DecodeLoop, Turn
from recollect.core.dispatch import ask
from recollect.core.memory import Memory
from recollect.core.reservation import copied
from recollect.core.validate import ContractError
from recollect.generation.filters import apply_filters, check_logits, draw, likeliest, penalise_repetition, prohibit
from recollect.generation.prefill import Model, Prompts, Reader, undisturbed
from recollect.generation.settings import Settings

Reason: TypeAlias = Literal["stop", "length"]


class Step(NamedTuple):  # made for every token, and quicker to make than a dataclass
    """What all rows said at one step. Rows that had ended before say nothing: −1 and 0."""

    said: list[int]
    log_p: list[float]  # of these ids, by the model itself: before temperature and filters

    @property
    def ids(self) -> Tensor:
        """(B,) on the CPU."""
        return torch.tensor(self.said, dtype=torch.long)

    @property
    def logprobs(self) -> Tensor:
        """(B,) on the CPU."""
        return torch.tensor(self.log_p, dtype=torch.float64)

    @property
    def valid(self) -> Tensor:
        """(B,) True where the row said something."""
        return self.ids >= 0


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
        self.settings = settings or Settings()
        self._modules = list(model.modules())
        asked = self.settings.tokens, self.settings.begin, memory, logits
        with undisturbed(self._modules):
            self._reader = Reader(model, prompts, *asked, modules=self._modules)
        count = len(self._reader.prompts)
        _check_choices(self.settings, self._reader.logits)
        numbers = list(range(count)) if rows is None else [int(row) for row in rows]
        if len(numbers) != count or any(number < 0 for number in numbers):
            raise ContractError("rows", numbers, f"{count} numbers, at least 0, one for each prompt")
        self._generators = [np.random.default_rng([self.settings.seed, number]) for number in numbers]
        self._loop: DecodeLoop | None = ask(
            "decode_loop", self._reader.device.type, self._reader, self.settings, self._generators
        )
        self._unread: list[int] | None = None  # ids chosen but not yet read, −1 for none
        self._seen = [prompt.tolist() for prompt in self._reader.prompts]  # each row's ids, for the penalty
        self._said = 0
        going = self.settings.tokens > 0
        self.reasons: list[Reason | None] = [None if going else "length" for _ in range(count)]  # None: not ended

    def __next__(self) -> Step:
        if all(self.reasons):
            raise StopIteration
        return self._advance(1)[0]

    def rest(self) -> list[Step]:
        """Generate to the end at once: faster than step by step, where steps are compiled or captured."""
        steps: list[Step] = []
        while not all(self.reasons):
            steps += self._advance(self.settings.tokens - self._said)
        return steps

    def _advance(self, most: int) -> list[Step]:
        """Generate at least one step and at most so many."""
        active = [reason is None for reason in self.reasons]
        with undisturbed(self._modules):
            turns: list[Turn] = []
            if self._loop is not None:
                turns, self._unread = self._loop.take(self._unread, most, self.settings.tokens - self._said, active)
            if not turns:
                self._catch_up()
                turns = [self._choose(active)]
                self._unread = turns[0][0]
        steps = [Step(*turn) for turn in turns]
        watched = steps if self.settings.stop else steps[-1:]  # without a stop id only the last can be the end
        self._said += len(steps) - len(watched)
        for step in watched:
            self._said += 1
            self._end_rows(step.said)
        return steps

    def _end_rows(self, ids: list[int]) -> None:
        for row, said in enumerate(ids):
            if said >= 0 and said in self.settings.stop:
                self.reasons[row] = "stop"
            elif said >= 0 and self._said == self.settings.tokens:
                self.reasons[row] = "length"

    def halt(self, row: int) -> None:
        """End a row for a reason of the caller's; what it has said stays said."""
        self.reasons[row] = "stop"

    @property
    def memory(self) -> Memory:
        """What is remembered now, after all that was said: a value of its own, which later steps do not change."""
        self._catch_up_undisturbed()
        return copied(self._reader.memory.settled())

    @property
    def logits(self) -> Tensor:
        """(B, V) what the model says next, after all that was said."""
        self._catch_up_undisturbed()
        return self._reader.logits.clone()

    def _catch_up_undisturbed(self) -> None:
        if self._unread is not None:
            with undisturbed(self._modules):
                self._catch_up()

    def _catch_up(self) -> None:
        if self._unread is not None:
            self._reader.read_chosen(self._unread)
            self._unread = None

    def _choose(self, active: list[bool]) -> Turn:
        """Return each row's next id and its log p; −1 and 0 where a row is not active."""
        logits = self._reader.logits  # (B, V)
        prohibited = list(self.settings.prohibited)
        weighed = self._penalised(logits)
        if self.settings.greedy:
            ids = likeliest(weighed, prohibited)
        else:
            uniform = [g.random() if live else 0.0 for g, live in zip(self._generators, active, strict=True)]
            ids = draw(apply_filters(prohibit(weighed, prohibited), self.settings), uniform)
        logprobs: list[float] = logits.log_softmax(dim=-1).gather(-1, ids[:, None])[:, 0].tolist()
        chosen = [i if live else -1 for i, live in zip(ids.tolist(), active, strict=True)]
        logprobs = [p if live else 0.0 for p, live in zip(logprobs, active, strict=True)]
        if not all(map(math.isfinite, logprobs)) or not set(prohibited).isdisjoint(chosen):
            check_logits(prohibit(logits, prohibited), torch.tensor(active, device=logits.device))
        for seen, i in zip(self._seen, chosen, strict=True):
            if i >= 0:
                seen.append(i)
        return chosen, logprobs

    def _penalised(self, logits: Tensor) -> Tensor:
        """Return logits with the repetition penalty; no loop chooses where there is one, so all ids were seen here."""
        penalty = self.settings.repetition_penalty
        if penalty == 1:
            return logits
        return penalise_repetition(logits, [torch.tensor(ids, dtype=torch.long) for ids in self._seen], penalty)


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

    >>> model = rc.Markov(3, order=1)
    >>> model.count(torch.tensor([[0, 1, 2, 0, 1, 2, 0]]))
    >>> steps = list(rc.stream(model, [[0]], rc.Settings(tokens=3, greedy=True)))
    >>> len(steps)
    3
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
    """Go on from many prompts at once, to the end: what `stream` says, collected.

    >>> model = rc.Markov(3, order=1)
    >>> model.count(torch.tensor([[0, 1, 2, 0, 1, 2, 0]]))
    >>> rc.generate(model, [[0], [1, 2]], rc.Settings(tokens=3, greedy=True))[1].ids
    [0, 1, 2]
    """
    steps = Stream(model, prompts, settings, memory, logits=logits, rows=rows)
    return collect(steps, steps.rest())


def collect(steps: Stream, said: list[Step]) -> list[Generation]:
    """Return what each row of an ended stream has said."""
    after, logits, is_one = steps.memory, steps.logits, len(steps.reasons) == 1
    nothing: Any = [([], [])] * len(steps.reasons)
    return [
        Generation(ids, logprobs, reason or "length", after if is_one else _row_of(after, row), logits[row].clone())
        for row, ((ids, logprobs), reason) in enumerate(
            zip(said_by_row(said) if said else nothing, steps.reasons, strict=True)
        )
    ]


def _row_of(memory: Memory, row: int) -> Memory:
    return memory.select([row]).settled()


def said_by_row(said: list[Step]) -> list[tuple[list[int], list[float]]]:
    """Return the ids that each row said, and log p of each."""
    ids, logprobs = (zip(*column, strict=True) for column in ([s.said for s in said], [s.log_p for s in said]))
    rows = zip(ids, logprobs, strict=True)
    return [
        ([i for i in row if i >= 0], [p for i, p in zip(row, values, strict=True) if i >= 0]) for row, values in rows
    ]


def _check_choices(settings: Settings, logits: Tensor) -> None:
    for name in ("stop", "prohibited"):
        beyond = [i for i in getattr(settings, name) if i >= logits.shape[-1]]
        if beyond:
            raise ContractError(name, beyond[0], f"ids from 0 to {logits.shape[-1] - 1}")
