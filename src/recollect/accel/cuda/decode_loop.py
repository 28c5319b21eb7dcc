"""The decode loop without a round trip to the CPU: each token is one replay of a CUDA graph.

On a GPU a step is some hundred short kernels, and launching one takes the CPU longer than running it takes the GPU. So
a turn (choose an id from the logits, read it, update the memory) is captured once and replayed, with the random numbers
drawn beforehand; ids come back many turns at a time. Without a GPU the same turn can run uncaptured: that is how it is
tested. It uses `forward` and `memory` only, and knows no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree

from recollect.accel.cuda.choice import ChoiceRule, TurnRecord, choose
from recollect.accel.cuda.single_step import check_meetings
from recollect.accel.model_survey import FEWEST, ModelSurvey, Unrepeatable, Unsettled, is_same, keeps_shapes, storage_of
from recollect.core.capture import as_graph, copy_together
from recollect.core.decode_hooks import DecodeReader, Turn
from recollect.core.dispatch import register
from recollect.core.memory import Memory
from recollect.core.record import is_readable
from recollect.core.reservation import as_filled, copied, filled, front, has_reserve, slots_for
from recollect.core.validate import ContractError, without_looks
from recollect.generation.filters import apply_filters, drawn_there
from recollect.generation.settings import Settings

BLOCK = 256  # turns between two synchronisations with the CPU
SHORT_BLOCK = 64  # where rows may end: turns after that have no effect
MOST = 8  # loops kept for a model


class Loop:
    """Turns of one model with memories of one shape, under one rule of choice; all of it in place.

    With `has_valid`, rows that are not active emit nothing and keep their memory.
    """

    def __init__(self, model: nn.Module, settings: Settings, memory: Memory, logits: Tensor, has_valid: bool) -> None:
        self.settings, self.has_valid = settings, has_valid
        self.memory, self.logits = copied(memory), logits.clone()  # written into by every turn
        self.leaves, self.structure = _pytree.tree_flatten(self.memory)
        rows, home = len(logits), logits.device
        self.uniform = torch.zeros(BLOCK, rows, dtype=torch.float64, device=home)
        active, live = (torch.ones(rows, dtype=torch.bool, device=home) for _ in range(2))
        at, ids, said = (torch.zeros(*shape, dtype=torch.long, device=home) for shape in ((1,), (rows,), (BLOCK, rows)))
        self.into = TurnRecord(at, active, live, ids, said, torch.zeros_like(self.uniform))
        self._stop = torch.tensor(list(settings.stop), dtype=torch.long, device=home)
        self._prohibited = torch.tensor(list(settings.prohibited), dtype=torch.long, device=home)
        turn = partial(self._turn, model)
        self._again: Callable[[], object] = as_graph(turn) if home.type == "cuda" else turn  # `load` undoes the warm-up
        self.owner: Callable[[], object | None] = lambda: None

    def fits(self, settings: Settings, memory: Memory, slots: int, logits: Tensor, has_valid: bool) -> bool:
        """Return whether it can continue from a settled memory with so many free slots, and chooses alike."""
        is_same_choice = _choice_key(settings) == _choice_key(self.settings)
        if not is_same_choice or has_valid != self.has_valid or logits.shape != self.logits.shape:
            return False
        return has_reserve(self.memory, memory, slots)

    def load(self, memory: Memory, logits: Tensor) -> None:
        """Continue from another memory, with free slots or without, and from the logits after it."""
        leaves = memory.leaves()
        longer = [mine for mine, t in zip(self.leaves, leaves, strict=True) if mine.shape != t.shape]
        if longer:  # nothing of an earlier memory may stay in the free slots: it could be NaN
            torch._foreach_zero_(longer)
        copy_together([front(mine, t) for mine, t in zip(self.leaves, leaves, strict=True)], leaves)
        self.logits.copy_(logits)

    def run(self, uniform: NDArray[np.float64], active: Sequence[bool]) -> tuple[list[list[int]], list[list[float]]]:
        """Run a turn for each of at most BLOCK rows of random numbers (n, B): ids, −1 for none, and log p."""
        count = len(uniform)
        self.uniform[:count].copy_(torch.from_numpy(uniform))
        self.into.active.copy_(torch.tensor(list(active)))
        self.into.at.zero_()
        for _ in range(count):
            self._again()
        said, log_p = self.into.said[:count].tolist(), self.into.log_p[:count].tolist()
        check_meetings(self.logits.device)
        return said, log_p

    def _turn(self, model: nn.Module) -> None:
        """Choose, emit and read. Nothing here may synchronise with the GPU, or copy anything to it."""
        rule = self._rule()
        filtered = self.logits.index_fill(-1, self._prohibited, -torch.inf) if len(self._prohibited) else self.logits
        if rule is None or not choose(rule, self.logits, filtered, self.uniform, self._stop, self.into):
            self._choose(filtered)
        self._read(model, self.into.ids, self.into.live)
        self.into.at.add_(1)

    def _rule(self) -> ChoiceRule | None:
        """Return the rule of choice, if the kernel implements it."""
        settings = self.settings
        if settings.greedy:
            return ChoiceRule(True)
        is_short = settings.top_p is None and settings.min_p is None
        return ChoiceRule(False, settings.top_k, settings.temperature) if is_short else None

    def _choose(self, filtered: Tensor) -> None:
        to, settings = self.into, self.settings
        if settings.greedy:
            ids = filtered.argmax(dim=-1)
        else:
            ids = drawn_there(apply_filters(filtered, settings), self.uniform.index_select(0, to.at)[0])
        log_p = self.logits.log_softmax(dim=-1).gather(-1, ids[:, None])[:, 0].double()  # (B,)
        to.ids.copy_(ids)
        to.live.copy_(to.active)
        to.said.index_copy_(0, to.at, ids.masked_fill(~to.live, -1)[None])
        to.log_p.index_copy_(0, to.at, log_p.masked_fill(~to.live, 0.0)[None])
        to.active.logical_and_((ids[:, None] != self._stop).all(dim=1))

    def _read(self, model: nn.Module, ids: Tensor, live: Tensor) -> None:
        valid = live[:, None] if self.has_valid else None
        with without_looks():
            y, after = model(ids[:, None], self.memory, valid=valid)
        given, structure = _pytree.tree_flatten(after)
        keeps_shapes(self.leaves, given, structure == self.structure)
        self.logits.copy_(y[:, 0] if valid is None else torch.where(valid, y[:, 0], self.logits))
        _copy_all(self.leaves, given)


def _choice_key(settings: Settings) -> tuple[object, ...]:
    """Return the settings that a turn depends on: not the seed, the number of tokens or the prompt."""
    filters = settings.temperature, settings.top_k, settings.top_p, settings.min_p
    return settings.greedy, tuple(settings.stop), tuple(settings.prohibited), *(() if settings.greedy else filters)


def _copy_all(to: list[Tensor], new: list[Tensor]) -> None:
    """Copy tensors into others, some of which they may be views of."""
    homes = {storage_of(t) for t in to}
    moved = [(old, t) for old, t in zip(to, new, strict=True) if not is_same(old, t)]
    sources = [t.clone() if storage_of(t) in homes else t for _, t in moved]
    copy_together([old for old, _ in moved], sources)


# ---- finding a loop ------------------------------------------------------------------------------

_LOOPS: WeakKeyDictionary[nn.Module, list[tuple[object, Loop]]] = WeakKeyDictionary()
REFUSED: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()  # why a model has none
_LOCK = RLock()


def find_loop(
    survey: ModelSurvey, owner: object, settings: Settings, memory: Memory, slots: int, logits: Tensor, has_valid: bool
) -> Loop | None:
    """Return a loop that continues from a settled memory with free slots, and is its owner's alone while that lives.

    None: this model's turn cannot be captured.
    """
    with _LOCK:
        kept = _LOOPS.setdefault(survey.model, [])
        kept[:] = [(seen, loop) for seen, loop in kept if seen == survey.print]
        free = (
            loop for _, loop in kept if loop.owner() is None and loop.fits(settings, memory, slots, logits, has_valid)
        )
        found = next(free, None) or _make(survey, settings, memory.reserve(slots, in_place=True), logits, has_valid)
        if found is None:
            return None
        kept[:] = [*[(seen, loop) for seen, loop in kept if loop is not found][1 - MOST :], (survey.print, found)]
        found.owner = ref(owner)
    found.load(memory, logits)
    return found


def _make(survey: ModelSurvey, settings: Settings, memory: Memory, logits: Tensor, has_valid: bool) -> Loop | None:
    try:
        found = Loop(survey.model, settings, memory, logits, has_valid)
        _prove(found, survey.model, memory, logits)
        return found
    except Unsettled:
        raise
    except Exception as error:  # whatever it is, the model can still be called
        REFUSED[survey.model] = f"{type(error).__name__}: {error}"
        return None


def _prove(loop: Loop, model: nn.Module, memory: Memory, logits: Tensor) -> None:
    """Compare two turns with the model itself: this detects a model that decides in Python, unseen by a graph."""
    loop.load(memory, logits)
    own = copied(memory)
    valid = torch.ones(len(logits), 1, dtype=torch.bool, device=logits.device) if loop.has_valid else None
    for uniform in (0.3, 0.7):
        loop.run(np.full((1, len(logits)), uniform), [True] * len(logits))
        y, own = model(loop.into.ids[:, None], own, valid=valid)
        apart = float((y[:, 0].double() - loop.logits.double()).abs().max() / y.double().abs().max().clamp(min=1e-3))
        if apart > (1e-3 if torch.finfo(y.dtype).bits > 16 else 0.1):
            raise Unrepeatable(f"a turn of the loop differs from the model's by {apart:.1e} of the largest logit")


# ---- the turns of a generation -------------------------------------------------------------------


class GraphLoop:
    """The turns of one generation by a captured loop: the form behind the hook "decode_loop" on a GPU.

    `reader` has the memory and the logits before the first turn, and again after every call.
    """

    def __init__(self, reader: DecodeReader, settings: Settings, generators: Sequence[np.random.Generator]) -> None:
        self.reader = reader
        self.settings = settings
        self._generators = generators
        self._survey = ModelSurvey(reader.model, reader.modules)
        self._is_off = self._survey.has_hooks or reader.model in REFUSED
        self._loop: Loop | None = None
        self._free_slots = 0  # turns for which there are free slots
        self._wait = 0  # turns to leave to the caller
        self._next_wait = 0
        self._taken = 0  # turns by this loop
        self._filled: list[int] | None = None  # slots filled before them, where all rows have the same length

    def take(
        self, unread: list[int] | None, most: int, left: int, active: list[bool]
    ) -> tuple[list[Turn], list[int] | None]:
        """Run at most so many turns of those left; no turns: the caller must do one."""
        if unread is not None:
            self.reader.read_chosen(unread)
        if self._is_off or self._wait > 0:
            self._wait -= 1
            return [], None
        if self._free_slots == 0:
            self._reset(left)
        if self._loop is None:
            return [], None
        count = min(most, self._free_slots, SHORT_BLOCK if self.settings.stop else BLOCK)
        uniform = np.stack([generator.random(count) for generator in self._generators], axis=1)
        said, log_p = self._loop.run(uniform, active)
        self._free_slots -= count
        turns = [turn for turn in zip(said, log_p, strict=True) if max(turn[0]) >= 0]
        self._taken += len(turns)
        if any(min(ids) < 0 for ids, _ in turns):
            self._filled = None
        self.reader.resume_from(self._remembered(self._loop), self._loop.logits)
        _check(turns, self.settings.prohibited)
        return turns, None

    def _remembered(self, loop: Loop) -> Callable[[], Memory]:
        """Return a function that returns the memory as it is now, without keeping this generation alive.

        Where all rows have the same length, the number of filled slots is known without a synchronisation.
        """
        slots = None if self._filled is None else [n + self._taken for n in self._filled]
        return partial(as_filled, loop.memory, slots)

    def _reset(self, left: int) -> None:
        """Find a loop with free slots for the tokens left."""
        reader = self.reader
        self._loop = None
        memory = reader.memory.settled()
        slots = slots_for(memory, left)
        has_valid = bool(self.settings.stop) or len(reader.logits) > 1  # rows that have ended must keep their memory
        try:
            self._loop = find_loop(self._survey, self, self.settings, memory, slots, reader.logits, has_valid)
        except Unsettled:
            self._wait, self._next_wait = self._next_wait, 2 * self._next_wait + 1
        else:
            self._is_off = self._loop is None
            self._free_slots = slots
            self._taken = 0
            self._filled = filled(memory)


def _check(turns: list[tuple[list[int], list[float]]], prohibited: Sequence[int]) -> None:
    forbidden = set(prohibited)
    for ids, log_p in turns:
        if all(map(math.isfinite, log_p)) and forbidden.isdisjoint(ids):
            continue
        for row, (i, p) in enumerate(zip(ids, log_p, strict=True)):
            if not math.isfinite(p) or i in forbidden:
                expected = "finite logits for at least one id that is not prohibited"
                raise ContractError(f"logits of row {row}", "NaN, infinity, or no id that may be chosen", expected)


def graph_loop(reader: DecodeReader, settings: Settings, generators: Sequence[np.random.Generator]) -> GraphLoop | None:
    """Return a loop for a generation, by its own settings alone. None: the caller chooses and reads."""
    if settings.tokens < FEWEST or settings.repetition_penalty != 1 or is_readable():
        return None
    return GraphLoop(reader, settings, generators)


register("decode_loop", "cuda", graph_loop)
