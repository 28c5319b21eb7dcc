"""One step of a model, recorded, so that it can be done again without the way there.

While generation goes on, a step does the same operations on other values of the same shapes. On a CPU most of its time
is not theirs: it is Python on its way through modules, checks and memories, and torch on its way to a kernel. So the
operations of one step are written down as torch does them, and done again by themselves, most of them by numpy
(lowering.py). Every tensor of the recording stays where it is; what only looks at another need not be done again, nor
what depends on nothing that changes. Knows `forward` and `memory` only, no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from recollect.accel.cpu.decode.choice_loop import Voice
from recollect.accel.cpu.decode.compilation import REASONS, compile_step
from recollect.accel.cpu.decode.lowering import KINDS, Call, Packed, array
from recollect.accel.cpu.decode.recording import PRODUCTS, Operation, Recorder, storage_of, tensors_of
from recollect.accel.cpu.decode.row_products import are_worth_it
from recollect.core.memory import Memory
from recollect.core.record import is_watched, readable
from recollect.core.validate import ContractError, without_looks

FEWEST = 16  # steps for which a recording is worth its while
MOST = 16  # recordings kept for a model

NEVER, LOADED, ALWAYS = 0, 1, 2  # when an operation is done again: never, with another memory, with every id


class Unrepeatable(Exception):
    """A step that depends on values in a way that no recording can."""


class Unsettled(Unrepeatable):
    """A step after which the memory has another shape: later ones may keep it."""


class Step:
    """A recorded step: ids (B,) and the memory in, logits (B, V) and the memory out, all of it in place."""

    def __init__(self, model: nn.Module, memory: Memory, rows: int, has_valid: bool, many: bool = False) -> None:
        leaves, self.structure = _pytree.tree_flatten(memory)
        lists = {id(t) for t in _lists(memory)}
        self.leaves = [_by_head(t) if id(t) in lists else t.clone() for t in leaves]
        self.ids = torch.zeros(rows, 1, dtype=torch.long)
        self.valid = torch.ones(rows, 1, dtype=torch.bool) if has_valid else None
        with readable(), without_looks(), Recorder() as recorder:  # fused kernels are for more than a step
            y, after = model(self.ids, _pytree.tree_unflatten(self.leaves, self.structure), valid=self.valid)
            self.logits = y[:, 0]
        self.shapes = [(t.shape, t.dtype) for t in leaves]
        given, structure = _pytree.tree_flatten(after)
        if structure != self.structure or any(a.shape != b.shape for a, b in zip(given, self.leaves, strict=True)):
            raise Unsettled("the memory does not keep its shape")
        if any(o.decides for o in recorder.operations):
            raise Unrepeatable("it decides by value")
        self.many = many  # it was to be compiled
        self._arrange(recorder.operations, given)
        self._ids, self._valid = array(self.ids), array(self.valid)
        self.owner: Callable[[], object | None] = lambda: None
        self.print: Any = None

    def _arrange(self, operations: list[Operation], given: list[Tensor]) -> None:
        """Say what is done when a memory is loaded, and what with every id."""
        moved = [(old, new) for old, new in zip(self.leaves, given, strict=True) if not is_same(old, new)]
        changing = [*(old for old, _ in moved), self.ids, *tensors_of(self.valid)]
        operations = _needed(operations, [self.logits, *given])
        outside = _outside(operations, [*changing, *self.leaves])
        when = _when(operations, outside, changing, self.leaves)
        loaded, always = ([o for o, a in zip(operations, when, strict=True) if a == at] for at in (LOADED, ALWAYS))
        rows, moves = len(self.ids), _moves(moved, {storage_of(t) for t in self.leaves})
        self._on_load = [call for o in loaded for call in o.calls(rows, outside)]
        self.whole = compile_step(always, moves) if self.many and rows == 1 else None  # else threads pay
        if self.whole is None:
            in_c = rows == 1 and are_worth_it([o.args[-1] for o in always if o.does in PRODUCTS])
            self._on_step = [call for o in always for call in o.calls(rows, outside, in_c)]
            self._on_step += [(np.copyto, (array(to), array(new))) for to, new in moves]
        else:
            self._on_step = [(self.whole, ())]
        self._packed = [arg for _, args in self._on_step for arg in args if isinstance(arg, Packed)]

    def fits(self, memory: Memory, rows: int, has_valid: bool) -> bool:
        """Whether it can go on from a memory: it has the recorded shapes."""
        if len(self.ids) != rows or (self.valid is not None) != has_valid:
            return False
        leaves, structure = _pytree.tree_flatten(memory)
        return [(t.shape, t.dtype) for t in leaves] == self.shapes and bool(structure == self.structure)

    def load(self, memory: Memory) -> None:
        """Go on from a memory."""
        for mine, theirs in zip(self.leaves, _pytree.tree_leaves(memory), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        for weight in self._packed:
            weight.renew()
        _do(self._on_load)

    def __call__(self, ids: Tensor, valid: Tensor | None) -> Tensor:
        """Read one id (B,) in each row, or in the valid ones; the logits are overwritten by the next step."""
        self._ids[:, 0] = ids.numpy()
        if valid is not None:
            self._valid[:, 0] = valid.numpy()
        for weight in self._packed:
            if not weight.is_current():
                weight.renew()
        _do(self._on_step)
        return self.logits

    @property
    def speaks(self) -> bool:
        """Whether it is compiled, with logits that can be chosen from in C."""
        return self.whole is not None and self.logits.is_contiguous() and self.logits.is_floating_point()

    def speak(self, voice: Voice, unread: int | None, most: int) -> tuple[list[int], list[float], bool]:
        """Read an id, or go on from the logits, and say more; see `Voice`."""
        assert self.whole is not None, "only where it `speaks`"
        if unread is not None:
            self._ids[0, 0] = unread
        return self.whole.speak(voice, self.ids, self.logits, unread is None, most)

    def prove(self, model: nn.Module, memory: Memory) -> None:
        """Read other ids both ways: a model that decides in Python, unseen by torch, is found out here."""
        self.load(memory)
        after = _pytree.tree_map(Tensor.clone, self.memory())
        for first in (1, 0):
            ids = (torch.arange(len(self.ids)) + first) % 2
            said = self(ids, None if self.valid is None else self.valid[:, 0])
            y, after = model(ids[:, None], after, valid=self.valid)
            if not (_is_near(said, y[:, 0]) and all(map(_is_near, self.leaves, _pytree.tree_leaves(after)))):
                raise Unrepeatable("a repeated step differs from a step")

    def memory(self) -> Memory:
        """Give the memory itself: later steps write into it."""
        found: Memory = _pytree.tree_unflatten(self.leaves, self.structure)
        return found


def _do(calls: list[Call]) -> None:
    with np.errstate(all="ignore"):  # torch says nothing of infinities either
        for call, args in calls:
            call(*args)


# ---- finding a recording -------------------------------------------------------------------------

_RECORDED: WeakKeyDictionary[nn.Module, list[Step]] = WeakKeyDictionary()
_REFUSED: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
_LOCK = RLock()


class Survey:
    """What a recording of a model hangs on beside values of tensors, found in its modules."""

    def __init__(self, model: nn.Module, modules: Sequence[nn.Module]) -> None:
        self.model = model
        held = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
        settings = [
            [(k, v) for k, v in vars(m).items() if k not in NEVER_PLAIN and isinstance(v, PLAIN)] for m in modules
        ]
        self.print = [(id(t), t.data_ptr()) for t in held], settings
        is_plain = all(t.device.type == "cpu" and t.dtype in KINDS for t in held)
        self.has_hooks = is_watched(*modules)
        self.may_repeat = (
            is_plain and not self.has_hooks and not torch.is_autocast_enabled("cpu") and model not in _REFUSED
        )


PLAIN = (int, float, str, tuple, type(None))
# What torch keeps in every module.
NEVER_PLAIN = {name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set))}


def recorded_step(
    survey: Survey, owner: object, memory: Memory, rows: int, has_valid: bool, many: bool = False
) -> Step | None:
    """Give a recorded step that is nobody else's, and that has been seen to do what the model does; None: it does not.

    A recording belongs to its owner as long as that lives. `many`: it is compiled, where it can be.
    """
    with _LOCK:  # of two threads one records, the other waits
        steps = _RECORDED.setdefault(survey.model, [])
        if any(step.print != survey.print for step in steps):
            steps.clear()
        free = (step for step in steps if step.owner() is None and step.many == many)
        found = next((step for step in free if step.fits(memory, rows, has_valid)), None)
        if found is None:
            found = _record(survey, memory, rows, has_valid, many)
            if found is None:
                return None
            steps.append(found)
            del steps[:-MOST]
        found.owner = ref(owner)
    found.load(memory)
    return found


def _record(survey: Survey, memory: Memory, rows: int, has_valid: bool, many: bool) -> Step | None:
    try:
        found = _proved(survey.model, memory, rows, has_valid, many)
    except (ContractError, Unsettled):
        raise
    except Exception as error:  # whatever it is, the model itself can still be asked
        _REFUSED[survey.model] = f"{type(error).__name__}: {error}"
        return None
    found.print = survey.print
    return found


def _proved(model: nn.Module, memory: Memory, rows: int, has_valid: bool, many: bool) -> Step:
    """Record a step, and see that it does what the model does; where only numpy's form does, it is that."""
    step = Step(model, memory, rows, has_valid, many)
    try:
        step.prove(model, memory)
    except Unrepeatable as error:
        if step.whole is None:
            raise
        REASONS["differs"] = str(error)
        step = Step(model, memory, rows, has_valid)
        step.prove(model, memory)
    step.many = many
    return step


def refusal(model: nn.Module) -> str | None:
    """Say why a model's steps are not repeated; None: they are, or nobody asked."""
    return _REFUSED.get(model)


def _outside(operations: list[Operation], own: list[Tensor]) -> set[int]:
    """Give the storages of what is read but neither made here nor a step's own: weights."""
    made = {storage_of(t) for o in operations for t in o.given if not o.is_view}
    return {storage_of(t) for o in operations for t in o.read} - made - {storage_of(t) for t in own}


def _when(operations: list[Operation], outside: set[int], changing: list[Tensor], leaves: list[Tensor]) -> list[int]:
    """Say of each operation when it must be done again.

    What comes from outside, the weights, may change at any time, and nothing would say so: fused optimisers write to
    them without a trace. What is made of them is made anew with every id.
    """
    level = dict.fromkeys(outside, ALWAYS) | {storage_of(t): LOADED for t in leaves}
    level |= {storage_of(t): ALWAYS for t in changing}
    level |= {storage_of(t): ALWAYS for o in operations for t in o.written}
    when = []
    for o in operations:
        at = max((level.get(storage_of(t), NEVER) for t in (*o.read, *o.given)), default=NEVER)
        at = ALWAYS if torch.Tag.nondeterministic_seeded in o.does.tags else at
        for t in o.given:
            level[storage_of(t)] = max(at, level.get(storage_of(t), NEVER))
        when.append(NEVER if o.is_view else at)
    return when


def _needed(operations: list[Operation], wanted: list[Tensor]) -> list[Operation]:
    """Leave out what nothing wanted depends on."""
    storages, kept = {storage_of(t) for t in wanted}, []
    for o in reversed(operations):
        if any(storage_of(t) in storages for t in (*o.given, *o.written)):
            storages |= {storage_of(t) for t in o.read}
            kept.append(o)
    return kept[::-1]


def _moves(moved: list[tuple[Tensor, Tensor]], homes: set[int]) -> list[tuple[Tensor, Tensor]]:
    """Say what is copied (to, from) to bring what a step remembers to where the next one looks for it."""
    aside = []
    for i, (old, new) in enumerate(moved):
        if storage_of(new) in homes:  # it looks at a place that may be overwritten before it is read
            moved[i] = old, new.clone()
            aside.append((moved[i][1], new))
    return aside + moved


def _lists(memory: Memory) -> Iterator[Tensor]:
    """Give the lists (B, S, N, H) in a memory."""
    for part in memory.within():
        yield from (t for _, t, axis in part._parts() if axis == 1 and isinstance(t, Tensor) and t.dim() == 4)


def _by_head(t: Tensor) -> Tensor:
    """Copy a list (B, S, N, H) so that each head's steps lie side by side: products then need no copy of it."""
    return t.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _is_near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), 1e-3, 1e-4, equal_nan=True)


def is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one place in memory, seen alike."""
    return a is b or (
        storage_of(a) == storage_of(b) and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    )
