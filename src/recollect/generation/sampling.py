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

from recollect.accel.cpu.decode.choice_loop import Voice
from recollect.accel.cpu.decode.compilation import worth_compiling
from recollect.accel.cuda.decode_loop import Turns, may_loop
from recollect.core.memory import Memory
from recollect.core.reservation import copied
from recollect.core.validate import ContractError
from recollect.generation.filters import apply_filters, check_logits, draw, likeliest, prohibit
from recollect.generation.prefill import Model, Prompts, Reader, alone, undisturbed
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
        self.settings, self._modules = settings or Settings(), list(model.modules())
        asked = self.settings.tokens, self.settings.begin, memory, logits
        many = worth_compiling(self.settings.tokens, len(prompts))
        with undisturbed(self._modules), alone(len(prompts)):
            self._reader = Reader(model, prompts, *asked, many=many, modules=self._modules)
        count = len(self._reader.prompts)
        _check_choices(self.settings, self._reader.logits)
        self._generators = [np.random.default_rng([self.settings.seed, row]) for row in _numbers(rows, count)]
        self._turns = Turns(self._reader, self.settings) if may_loop(self._reader, self.settings) else None
        speaks = many and self._turns is None
        self._voice = Voice(self.settings, self._generators[0], model.width_out) if speaks else None
        self._unread: list[int] | None = None  # ids said but not yet read, −1 for none
        self._said = 0
        going = self.settings.tokens > 0
        self.reasons: list[Reason | None] = [None if going else "length" for _ in range(count)]  # None: not ended

    def __next__(self) -> Step:
        if all(self.reasons):
            raise StopIteration
        return self._say(1)[0]

    def rest(self) -> list[Step]:
        """Go on to the end at once: quicker than step by step, where steps are compiled."""
        said: list[Step] = []
        while not all(self.reasons):
            said += self._say(self.settings.tokens - self._said)
        return said

    def _say(self, most: int) -> list[Step]:
        """Say at least one step and at most so many."""
        with undisturbed(self._modules), alone(len(self.reasons)):
            steps = self._say_many(most) or [self._say_one()]
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

    def _say_one(self) -> Step:
        self._catch_up()
        self._unread, logprobs = self._choose([reason is None for reason in self.reasons])
        return Step(self._unread, logprobs)

    def _say_many(self, most: int) -> list[Step]:
        """Say some steps without Python between them; none where that cannot be."""
        if self._turns is not None:
            return self._take_turns(self._turns, most)
        if self._voice is None:
            return []
        unread = None if self._unread is None else self._unread[0]
        said, logprobs, all_read = self._reader.speak(self._voice, unread, most)
        if all_read:
            self._unread = None
        elif said:
            self._unread = said[-1:]
        return [Step([i], [p]) for i, p in zip(said, logprobs, strict=True)]

    def _take_turns(self, turns: Turns, most: int) -> list[Step]:
        self._catch_up()
        active = [reason is None for reason in self.reasons]
        left = self.settings.tokens - self._said
        return [Step(*turn) for turn in turns.take(most, left, self._generators, active)]

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
        """Read what was said. A row that has ended reads its last id, and nothing from then on."""
        if self._unread is not None:
            said = torch.tensor(self._unread)
            self._reader.read(*((said,) if min(self._unread) >= 0 else (said.clamp(min=0), said >= 0)))
            self._unread = None

    def _choose(self, active: list[bool]) -> tuple[list[int], list[float]]:
        """Give each row's next id and its log p; −1 and 0 where a row is not active."""
        said = self._reader.logits  # (B, V)
        prohibited = list(self.settings.prohibited)
        if self.settings.greedy:
            ids = likeliest(said, prohibited)
        else:
            uniform = [g.random() if live else 0.0 for g, live in zip(self._generators, active, strict=True)]
            ids = draw(apply_filters(prohibit(said, prohibited), self.settings), uniform)
        logprobs: list[float] = said.log_softmax(dim=-1).gather(-1, ids[:, None])[:, 0].tolist()
        chosen = [i if live else -1 for i, live in zip(ids.tolist(), active, strict=True)]
        logprobs = [p if live else 0.0 for p, live in zip(logprobs, active, strict=True)]
        if not all(map(math.isfinite, logprobs)) or not set(prohibited).isdisjoint(chosen):
            check_logits(prohibit(said, prohibited), torch.tensor(active, device=said.device))
        return chosen, logprobs


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
    return collect(steps, steps.rest())


def collect(steps: Stream, said: list[Step]) -> list[Generation]:
    """Give what each row of an ended stream has said."""
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
    """Give the ids that each row said, and log p of each."""
    ids, logprobs = (zip(*column, strict=True) for column in ([s.said for s in said], [s.log_p for s in said]))
    rows = zip(ids, logprobs, strict=True)
    return [
        ([i for i in row if i >= 0], [p for i, p in zip(row, values, strict=True) if i >= 0]) for row, values in rows
    ]


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
