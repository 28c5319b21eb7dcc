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
from recollect.accel.cpu.decode.step_memory import ROW_COUNTS, StepMemory, padded_rows
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
MOST_ROWS = ROW_COUNTS[-1]
PATIENCE = 4  # steps to wait after rows have ended before the new shape is compiled: others may end soon


class RepeatedStep:
    """A compiled step: ids (B,) and the memory in, logits (B, V) and the memory out, all of it in place.

    It has the rows of its memory, padded. Where there are several it takes a mask: rows end one after the other.
    """

    def __init__(self, model: nn.Module, memory: Memory, rows: int) -> None:
        self._memory = StepMemory(memory)
        self._rows = rows
        size = padded_rows(rows)
        self.ids = torch.zeros(size, 1, dtype=torch.long)
        self.valid = torch.ones(size, 1, dtype=torch.bool) if size > 1 else None
        leaves, structure = self._memory.leaves, self._memory.structure
        with readable(), without_looks(), Recorder() as recorder:  # fused kernels are for sequences, not for a step
            y, after = model(self.ids, _pytree.tree_unflatten(leaves, structure), valid=self.valid)
            self._logits = y[:, 0]
        self.logits = self._logits[:rows]
        given, structure_after = _pytree.tree_flatten(after)
        keeps_shapes(leaves, given, structure_after == structure)
        if any(o.decides for o in recorder.operations):
            raise Unrepeatable("its control flow depends on values")
        self._compile(recorder.operations, given)
        self.owner: Callable[[], object | None] = lambda: None
        self.print: object = None  # of the survey that it is valid for

    def _compile(self, operations: list[Operation], given: list[Tensor]) -> None:
        """Find what is done once per loaded memory, and compile what is done for every id."""
        leaves = self._memory.leaves
        moved = [(old, new) for old, new in zip(leaves, given, strict=True) if not is_same(old, new)]
        operations = needed(operations, [self._logits, *given])
        changing = [*(old for old, _ in moved), self.ids, *tensors_of(self.valid)]
        when = schedule(operations, changing, leaves)
        self._on_load = [o for o, at in zip(operations, when, strict=True) if at == LOADED]
        homes = {storage_of(t) for t in leaves}
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

    def fits(self, memory: Memory, rows: int) -> bool:
        """Return whether it can continue from a memory: padded, it has the recorded shapes."""
        return len(self.ids) == padded_rows(rows) and self._memory.fits(memory)

    def begin(self, memory: Memory, rows: int) -> None:
        """Continue from a memory with so many rows."""
        self._rows = rows
        self.logits = self._logits[:rows]
        self.ids.zero_()
        self.mask(None)
        self.load(memory)

    def load(self, memory: Memory) -> None:
        """Continue from a memory."""
        copied = {storage_of(t) for t in self._memory.load(memory)}
        if any(storage_of(t) in copied for o in self._on_load for t in o.read):
            for operation in self._on_load:
                operation.again()

    def __call__(self, ids: Tensor, valid: Tensor | None) -> Tensor:
        """Read one id (B,) in each row, or in the valid ones; the logits are overwritten by the next step."""
        self.ids[: self._rows, 0] = ids
        self.mask(valid)
        self.compiled()
        return self.logits

    def mask(self, valid: Tensor | None) -> None:
        """Read in the rows of `valid` (B,) from now on; None: in all."""
        if self.valid is not None:
            self.valid[: self._rows, 0] = True if valid is None else valid

    def prove(self, model: nn.Module, memory: Memory) -> None:
        """Compare two steps with the model itself: this detects a model that decides in Python, unseen by torch."""
        self.load(memory)
        after = _pytree.tree_map(Tensor.clone, memory)
        valid = torch.ones(self._rows, dtype=torch.bool)
        for first in (1, 0):
            ids = (torch.arange(self._rows) + first) % 2
            logits = self(ids, valid)
            y, after = model(ids[:, None], after, valid=None if self.valid is None else valid[:, None])
            leaves = _pytree.tree_leaves(self.memory())
            if not (allclose(logits, y[:, 0]) and all(map(allclose, leaves, _pytree.tree_leaves(after)))):
                REASONS["differs"] = "a repeated step differs from a step"
                raise Unrepeatable(REASONS["differs"])
            valid[0] = self.valid is None  # the second step leaves a row out, where it can

    def memory(self) -> Memory:
        """Return the memory itself: later steps write into it."""
        return self._memory.view()


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
        size = padded_rows(rows)
        if self._rows not in (None, size):
            self._wait = PATIENCE
        self._rows = size
        if self._is_off or rows > MOST_ROWS or (has_valid and rows == 1):
            return None
        if self._wait > 0:
            self._wait -= 1
            return None
        try:
            found = recorded_step(self._survey, owner, memory, rows)
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


def recorded_step(survey: ModelSurvey, owner: object, memory: Memory, rows: int) -> RepeatedStep | None:
    """Return a step that is its owner's alone while that lives, checked against the model."""
    with _LOCK:  # of two threads one records, the other waits
        steps = _RECORDED.setdefault(survey.model, [])
        if any(step.print != survey.print for step in steps):
            steps.clear()
        free = (step for step in steps if step.owner() in (None, owner))
        found = next((step for step in free if step.fits(memory, rows)), None)
        if found is None:
            try:
                found = RepeatedStep(survey.model, memory, rows)
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
    found.begin(memory, rows)
    return found


def refusal(model: nn.Module) -> str:
    """Return why a model's steps are not repeated; "": they are, or it was not tried."""
    return _REFUSED.get(model, "")
