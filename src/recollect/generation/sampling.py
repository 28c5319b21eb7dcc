"""Greedy decoding and sampling, one id at a time in many rows at once.

    for step in stream(model, prompts, Settings(tokens=40, top_p=0.9)):
        step.ids  # (B,)

Each row draws from its own random generator, seeded by (seed, the row's number), one number per id. The ids of a row
therefore depend on its number, but neither on the rest of the batch nor on its place there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from recollect.core.decode_hooks import DecodeLoop, Turn
from recollect.core.dispatch import ask
from recollect.core.memory import Memory
from recollect.core.reservation import copied
from recollect.core.threads import pace
from recollect.core.validate import ContractError
from recollect.generation.filters import apply_filters, check_logits, draw, likeliest, penalise_repetition, prohibit
from recollect.generation.prefill import Model, PromptReader, Prompts, undisturbed
from recollect.generation.settings import Settings, check_vocabulary

Reason: TypeAlias = Literal["stop", "length"]


class Step(NamedTuple):  # one per token: faster to construct than a dataclass
    """The id that each row generated at one step, and its log p; −1 and 0 in rows that had ended before."""

    chosen: list[int]
    log_p: list[float]  # of these ids under the model, before temperature and filters

    @property
    def ids(self) -> Tensor:
        """(B,) on the CPU."""
        return torch.tensor(self.chosen, dtype=torch.long)

    @property
    def logprobs(self) -> Tensor:
        """(B,) on the CPU."""
        return torch.tensor(self.log_p, dtype=torch.float64)

    @property
    def valid(self) -> Tensor:
        """(B,) True where the row generated an id."""
        return self.ids >= 0


@dataclass(frozen=True, eq=False)
class Generation:
    """What one row generated, why it ended, and its memory.

    `memory` (one row) has read the prompt and all of `ids`; `logits` (V,) are the model's for the next id. With
    both, `generate(model, [[]], settings, memory, logits=logits[None])` continues from here.
    """

    ids: list[int]  # a stop id included
    logprobs: list[float]
    reason: Reason
    memory: Memory = field(repr=False)
    logits: Tensor = field(repr=False)


class Stream(Iterator[Step]):
    """An iterator over the steps of a generation; see `stream`. Between steps the model may be used otherwise."""

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
        steps = self.settings.tokens
        with undisturbed(self._modules):
            self._reader = PromptReader(
                model, prompts, steps, self.settings.begin, memory, logits, modules=self._modules
            )
        count = len(self._reader.prompts)
        check_vocabulary(self.settings, self._reader.logits.shape[-1])
        numbers = list(range(count)) if rows is None else [int(row) for row in rows]
        if len(numbers) != count or any(number < 0 for number in numbers):
            raise ContractError("rows", numbers, f"{count} numbers, at least 0, one for each prompt")
        self._generators = [np.random.default_rng([self.settings.seed, number]) for number in numbers]
        self._loop: DecodeLoop | None = ask(
            "decode_loop", self._reader.device.type, self._reader, self.settings, self._generators
        )
        self._unread: list[int] | None = None  # ids chosen but not yet read, −1 for none
        self._seen = [prompt.tolist() for prompt in self._reader.prompts]  # each row's ids, for the penalty
        self._count = 0  # steps generated
        self.reasons: list[Reason | None] = [None if steps > 0 else "length" for _ in range(count)]  # None: not ended

    def __next__(self) -> Step:
        if all(self.reasons):
            raise StopIteration
        return self._advance(1)[0]

    def rest(self) -> list[Step]:
        """Generate to the end at once: faster than step by step where steps are compiled or captured."""
        steps: list[Step] = []
        while not all(self.reasons):
            steps += self._advance(self.settings.tokens - self._count)
        return steps

    def _advance(self, most: int) -> list[Step]:
        """Generate at least one step and at most `most`."""
        pace()
        active = [reason is None for reason in self.reasons]
        with undisturbed(self._modules):
            turns: list[Turn] = []
            if self._loop is not None:
                turns, self._unread = self._loop.take(self._unread, most, self.settings.tokens - self._count, active)
            if not turns:
                self._catch_up()
                turns = [self._choose(active)]
                self._unread = turns[0][0]
        steps = [Step(*turn) for turn in turns]
        may_end = steps if self.settings.stop else steps[-1:]  # without stop ids rows end at the last step only
        self._count += len(steps) - len(may_end)
        for step in may_end:
            self._count += 1
            for row, i in enumerate(step.chosen):
                if i >= 0 and i in self.settings.stop:
                    self.reasons[row] = "stop"
                elif i >= 0 and self._count == self.settings.tokens:
                    self.reasons[row] = "length"
        return steps

    def halt(self, row: int) -> None:
        """End a row for a reason of the caller's; the ids that it has generated are kept."""
        self.reasons[row] = "stop"

    @property
    def memory(self) -> Memory:
        """The memory after all ids generated so far: a copy, which later steps do not change."""
        self._catch_up_undisturbed()
        return copied(self._reader.memory.settled())

    @property
    def logits(self) -> Tensor:
        """(B, V) the logits for the next id, after all ids generated so far."""
        self._catch_up_undisturbed()
        return self._reader.logits.clone()

    def _catch_up_undisturbed(self) -> None:
        if self._unread is not None:
            with undisturbed(self._modules):
                self._catch_up()

    def _catch_up(self) -> None:
        """Read the ids that were chosen last: reading them is left until it is needed."""
        if self._unread is not None:
            self._reader.read_chosen(self._unread)
            self._unread = None

    def _choose(self, active: list[bool]) -> Turn:
        """Return each row's next id and its log p; −1 and 0 where a row is not active."""
        logits = self._reader.logits  # (B, V)
        prohibited = list(self.settings.prohibited)
        penalised = self._penalised(logits)
        if self.settings.greedy:
            ids = likeliest(penalised, prohibited)
        else:
            uniform = [g.random() if live else 0.0 for g, live in zip(self._generators, active, strict=True)]
            ids = draw(apply_filters(prohibit(penalised, prohibited), self.settings), uniform)
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
        """Return logits with the repetition penalty; with a penalty no decode loop runs, so `_seen` has all ids."""
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
    """Continue many prompts at once, step by step.

    `prompts` are lists of ids of any lengths, read after `memory` where one is given: an encoder's, or a saved one (one
    row for each prompt). A prompt may be empty where `settings.begin` is read before it, or where `logits` (B, V) are
    given, those of the model after `memory`. `rows` are the rows' numbers for the draw, 0, 1, … unless given.

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
    """Continue many prompts at once, and return the generations at the end; see `stream`.

    >>> model = rc.Markov(3, order=1)
    >>> model.count(torch.tensor([[0, 1, 2, 0, 1, 2, 0]]))
    >>> rc.generate(model, [[0], [1, 2]], rc.Settings(tokens=3, greedy=True))[1].ids
    [0, 1, 2]
    """
    steps = Stream(model, prompts, settings, memory, logits=logits, rows=rows)
    return collect(steps, steps.rest())


def collect(stream: Stream, steps: list[Step]) -> list[Generation]:
    """Return the generation of each row from all steps of a stream that has ended."""
    memory = stream.memory
    logits = stream.logits
    rows = ids_by_row(steps) if steps else [([], [])] * len(stream.reasons)
    found = []
    for row, ((ids, logprobs), reason) in enumerate(zip(rows, stream.reasons, strict=True)):
        own = memory if len(rows) == 1 else memory.select([row]).settled()
        found.append(Generation(ids, logprobs, reason or "length", own, logits[row].clone()))
    return found


def ids_by_row(steps: list[Step]) -> list[tuple[list[int], list[float]]]:
    """Return the ids that each row generated, and log p of each."""
    ids = zip(*(step.chosen for step in steps), strict=True)
    logprobs = zip(*(step.log_p for step in steps), strict=True)
    rows = zip(ids, logprobs, strict=True)
    return [
        ([i for i in row if i >= 0], [p for i, p in zip(row, values, strict=True) if i >= 0]) for row, values in rows
    ]
