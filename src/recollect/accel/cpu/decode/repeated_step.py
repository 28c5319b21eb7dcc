"""One step of a model, recorded and compiled, so that it can be repeated without Python and torch between operations.

During generation a step does the same operations on other values of the same shapes. On a CPU most of its time is not
spent in them: it is Python's in modules, checks and memories, and torch's dispatch of each kernel. So the operations of
one step are recorded as torch does them and written as one function in C (compilation.py). Every recorded tensor keeps
its address; views are not made again, nor what depends on nothing that changes. It uses `forward` and `memory` only,
and knows no model. Where a step cannot be recorded or compiled, generation calls the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from recollect.accel.cpu.decode.c_source import TYPES
from recollect.accel.cpu.decode.compilation import REASONS, compile_step, worth_compiling
from recollect.accel.cpu.decode.recording import ALWAYS, LOADED, Operation, Recorder, needed, schedule, tensors_of
from recollect.accel.model_survey import (
    ModelSurvey,
    Unrepeatable,
    Unsettled,
    allclose,
    is_same,
    keeps_shapes,
    storage_of,
)
from recollect.core.memory import Memory
from recollect.core.record import is_readable, readable
from recollect.core.validate import ContractError, without_looks

MOST = 16  # recordings kept for a model
MOST_ROWS = 16  # more were not measured to be faster than the model itself
PATIENCE = 4  # steps to wait after rows have ended before the new shape is compiled: others may end soon


class RepeatedStep:
    """A compiled step: ids (B,) and the memory in, logits (B, V) and the memory out, all of it in place."""

    def __init__(self, model: nn.Module, memory: Memory, rows: int, has_valid: bool) -> None:
        leaves, self.structure = _pytree.tree_flatten(memory)
        lists = {
            id(t)
            for part in memory.within()
            for _, t, axis in part._parts()
            if axis == 1 and isinstance(t, Tensor) and t.dim() == 4
        }
        self.leaves = [_by_head(t) if id(t) in lists else t.clone() for t in leaves]
        self.shapes = [(t.shape, t.dtype) for t in leaves]
        self.ids = torch.zeros(rows, 1, dtype=torch.long)
        self.valid = torch.ones(rows, 1, dtype=torch.bool) if has_valid else None
        with readable(), without_looks(), Recorder() as recorder:  # fused kernels are for sequences, not for a step
            y, after = model(self.ids, _pytree.tree_unflatten(self.leaves, self.structure), valid=self.valid)
            self.logits = y[:, 0]
        given, structure = _pytree.tree_flatten(after)
        keeps_shapes(self.leaves, given, structure == self.structure)
        if any(o.decides for o in recorder.operations):
            raise Unrepeatable("its control flow depends on values")
        self._compile(recorder.operations, given)
        self.owner: Callable[[], object | None] = lambda: None
        self.print: object = None  # of the survey that it is valid for

    def _compile(self, operations: list[Operation], given: list[Tensor]) -> None:
        """Find what is done once per loaded memory, and compile what is done for every id."""
        moved = [(old, new) for old, new in zip(self.leaves, given, strict=True) if not is_same(old, new)]
        operations = needed(operations, [self.logits, *given])
        changing = [*(old for old, _ in moved), self.ids, *tensors_of(self.valid)]
        when = schedule(operations, changing, self.leaves)
        self._on_load = [o for o, at in zip(operations, when, strict=True) if at == LOADED]
        homes = {storage_of(t) for t in self.leaves}
        aside = []
        for i, (old, new) in enumerate(moved):
            if storage_of(new) in homes:  # a view of memory that may be overwritten before it is read
                moved[i] = old, new.clone()
                aside.append((moved[i][1], new))
        always = [o for o, at in zip(operations, when, strict=True) if at == ALWAYS]
        self.compiled = compile_step(always, aside + moved)

    @property
    def has_valid(self) -> bool:
        """Whether it takes a mask of valid rows."""
        return self.valid is not None

    def fits(self, memory: Memory, rows: int, has_valid: bool) -> bool:
        """Return whether it can continue from a memory: it has the recorded shapes."""
        if len(self.ids) != rows or self.has_valid != has_valid:
            return False
        leaves, structure = _pytree.tree_flatten(memory)
        return [(t.shape, t.dtype) for t in leaves] == self.shapes and bool(structure == self.structure)

    def load(self, memory: Memory) -> None:
        """Continue from a memory."""
        for mine, theirs in zip(self.leaves, _pytree.tree_leaves(memory), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        for operation in self._on_load:
            operation.again()

    def __call__(self, ids: Tensor, valid: Tensor | None) -> Tensor:
        """Read one id (B,) in each row, or in the valid ones; the logits are overwritten by the next step."""
        self.ids[:, 0] = ids
        if self.valid is not None:
            assert valid is not None, "a step that was recorded with a mask needs one"
            self.valid[:, 0] = valid
        self.compiled()
        return self.logits

    def prove(self, model: nn.Module, memory: Memory) -> None:
        """Compare two steps with the model itself: this detects a model that decides in Python, unseen by torch."""
        self.load(memory)
        after = _pytree.tree_map(Tensor.clone, self.memory())
        for first in (1, 0):
            ids = (torch.arange(len(self.ids)) + first) % 2
            logits = self(ids, None if self.valid is None else self.valid[:, 0])
            y, after = model(ids[:, None], after, valid=self.valid)
            if not (allclose(logits, y[:, 0]) and all(map(allclose, self.leaves, _pytree.tree_leaves(after)))):
                REASONS["differs"] = "a repeated step differs from a step"
                raise Unrepeatable(REASONS["differs"])

    def memory(self) -> Memory:
        """Return the memory itself: later steps write into it."""
        found: Memory = _pytree.tree_unflatten(self.leaves, self.structure)
        return found


def _by_head(t: Tensor) -> Tensor:
    """Return a copy of keys or values (B, S, N, H) with each head's steps contiguous: matmuls then need no copy."""
    return t.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


# ---- finding a recording -------------------------------------------------------------------------

_RECORDED: WeakKeyDictionary[nn.Module, list[RepeatedStep]] = WeakKeyDictionary()
_REFUSED: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
_LOCK = RLock()


class RepeatedSteps:
    """The repeated steps of one generation: the form behind the hook "decode_step".

    When a step is repeated depends on the generation alone, never on what was recorded before: the results of both
    paths differ in the last bit.
    """

    def __init__(self, survey: ModelSurvey, patience: int) -> None:
        self._survey = survey
        self._is_off = False
        self._rows: int | None = None
        self._wait = patience  # steps to read with the model itself
        self._next_wait = 0

    def find(self, owner: object, memory: Memory, rows: int, has_valid: bool) -> RepeatedStep | None:
        """Return a step that continues from a memory; None: the model itself reads this step."""
        if self._rows not in (None, rows):
            self._wait = PATIENCE
        self._rows = rows
        if self._is_off or rows > MOST_ROWS:
            return None
        if self._wait > 0:
            self._wait -= 1
            return None
        try:
            found = recorded_step(self._survey, owner, memory, rows, has_valid)
        except Unsettled:
            self._wait, self._next_wait = self._next_wait, 2 * self._next_wait + 1
            return None
        self._is_off = found is None
        return found


def decode_steps(
    model: nn.Module, modules: Sequence[nn.Module], steps: int, memory: Memory | None, patience: int
) -> RepeatedSteps | None:
    """Return the repeated steps of a generation of so many; None: the model itself is called."""
    if not worth_compiling(steps, memory) or is_readable() or torch.is_autocast_enabled("cpu") or model in _REFUSED:
        return None
    survey = ModelSurvey(model, modules)
    is_covered = all(t.device.type == "cpu" and t.dtype in TYPES for t in survey.tensors)
    return RepeatedSteps(survey, patience) if is_covered and not survey.has_hooks else None


def recorded_step(
    survey: ModelSurvey, owner: object, memory: Memory, rows: int, has_valid: bool
) -> RepeatedStep | None:
    """Return a step that is its owner's alone while that lives, checked against the model."""
    with _LOCK:  # of two threads one records, the other waits
        steps = _RECORDED.setdefault(survey.model, [])
        if any(step.print != survey.print for step in steps):
            steps.clear()
        free = (step for step in steps if step.owner() is None)
        found = next((step for step in free if step.fits(memory, rows, has_valid)), None)
        if found is None:
            try:
                found = RepeatedStep(survey.model, memory, rows, has_valid)
                found.prove(survey.model, memory)
            except (ContractError, Unsettled):
                raise
            except Exception as error:  # whatever it is, the model can still be called
                _REFUSED[survey.model] = f"{type(error).__name__}: {error}"
                return None
            found.print = survey.print
            steps.append(found)
            del steps[:-MOST]
        found.owner = ref(owner)
    found.load(memory)
    return found


def refusal(model: nn.Module) -> str:
    """Return why a model's steps are not repeated; "": they are, or it was not tried."""
    return _REFUSED.get(model, "")
