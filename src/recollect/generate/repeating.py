"""One step of a model, recorded, so that it can be done again without the way there.

While generation goes on, a step does the same operations on other values of the same shapes. On a CPU most of its time
is not theirs: it is Python on its way through modules, checks and memories, and torch on its way to a kernel. So the
operations of one step are written down as torch does them, and done again by themselves, most of them by numpy
(lowering.py). Every tensor of the recording stays where it is; what only looks at another need not be done again, nor
what depends on nothing that changes. Knows `forward` and `memory` only, no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from recollect.entry import ContractError, without_looks
from recollect.generate.lowering import KINDS, Call, Packed, array, lower, product
from recollect.memory import Memory
from recollect.observe import readable

FEWEST = 16  # steps for which a recording is worth its while
MOST = 16  # recordings kept for a model

aten = torch.ops.aten
NEVER, LOADED, ALWAYS = 0, 1, 2  # when an operation is done again: never, with another memory, with every id
BY_SHAPE = (aten.new_zeros.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
DECIDES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Operation:
    """What torch did once: an operation, what it read, and what it gave."""

    def __init__(self, does: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> None:
        self.does, self.args, self.kwargs = does, args, kwargs
        self.read = [] if does in BY_SHAPE else _tensors((args, kwargs))
        self.given = _tensors(given)
        written = [
            a for a, s in zip(args, does._schema.arguments, strict=False) if s.alias_info and s.alias_info.is_write
        ]
        self.written = _tensors(written)

    @property
    def is_view(self) -> bool:
        """Whether it only looks at what it read."""
        seen = {_storage(t) for t in self.read}
        return not self.written and bool(self.given) and all(_storage(t) in seen for t in self.given)

    @property
    def decides(self) -> bool:
        """Whether what happens next, or a shape, depends on values."""
        is_gather = self.does is aten.index.Tensor and all(t.dtype != torch.bool for t in self.read[1:])
        return bool(DECIDES & set(self.does.tags)) and not is_gather

    def calls(self, rows: int, outside: set[int]) -> list[Call]:
        """Give the calls that do it again, in place; `outside` are the weights' storages."""
        if self.does in (aten.mm.default, aten.addmm.default):
            *bias, x, y = self.args
            found = product(self.given[0], x, y, bias[0] if bias else None, _storage(y) in outside)
        elif rows > 1 and self.does in BETTER_TOGETHER:
            found = None
        else:
            found = lower(self.does, self.args, self.kwargs, self.given)
        return [self._by_torch()] if found is None else found

    def _by_torch(self) -> Call:
        """Let torch write into the tensors it gave, where it has a form for that; else copy."""
        inside = in_place_form(self.does)
        if self.written or inside is None:
            return self._again, ()
        return partial(inside[0], **self.kwargs, **dict(zip(inside[1], self.given, strict=True))), self.args

    def _again(self) -> None:
        given = self.does(*self.args, **self.kwargs)
        if not self.written:
            for old, new in zip(self.given, _tensors(given), strict=True):
                old.copy_(new)


def in_place_form(does: Any) -> tuple[Any, list[str]] | None:
    """Give the form of an operation that takes its results' places, and their names."""
    wanted = [(a.name, str(a.type)) for a in does._schema.arguments]
    for name in (f"{does._overloadname}_out", "out"):
        form = getattr(does.overloadpacket, name, None)
        if form is not None and [(a.name, str(a.type)) for a in form._schema.arguments if not a.is_out] == wanted:
            return form, [a.name for a in form._schema.arguments if a.is_out]
    return None


# With many rows threads pay.
BETTER_TOGETHER = (aten.bmm.default, aten._softmax.default, aten.native_layer_norm.default, aten.relu.default)


class Recorder(TorchDispatchMode):
    """Writes down what torch does."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it would first import it, a second's work

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, does: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do it, and write it down."""
        given = does(*args, **(kwargs or {}))
        self.operations.append(Operation(does, args, kwargs or {}, given))
        return given


class Unrepeatable(Exception):
    """A step that depends on values in a way that no recording can."""


class Unsettled(Unrepeatable):
    """A step after which the memory has another shape: later ones may keep it."""


class Step:
    """A recorded step: ids (B,) and the memory in, logits (B, V) and the memory out, all of it in place."""

    def __init__(self, model: nn.Module, memory: Memory, rows: int, has_valid: bool) -> None:
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
        self._arrange(recorder.operations, given)
        self._ids, self._valid = array(self.ids), array(self.valid)
        self.owner: Callable[[], object | None] = lambda: None
        self.print: Any = None

    def _arrange(self, operations: list[Operation], given: list[Tensor]) -> None:
        """Say what is done when a memory is loaded, and what with every id."""
        moved = [(old, new) for old, new in zip(self.leaves, given, strict=True) if not _is_same(old, new)]
        changing = [*(old for old, _ in moved), self.ids, *_tensors(self.valid)]
        operations = _needed(operations, [self.logits, *given])
        outside = _outside(operations, [*changing, *self.leaves])
        when = _when(operations, outside, changing, self.leaves)
        self._on_load, self._on_step = (
            [call for o, a in zip(operations, when, strict=True) if a == at for call in o.calls(len(self.ids), outside)]
            for at in (LOADED, ALWAYS)
        )
        self._packed = [arg for _, args in self._on_step for arg in args if isinstance(arg, Packed)]
        self._on_step += _moves(moved, {_storage(t) for t in self.leaves})

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
    """What a recording of a model hangs on beside values of tensors, found by one walk through its modules."""

    def __init__(self, model: nn.Module) -> None:
        self.model, modules = model, list(model.modules())
        held = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
        settings = [[(k, v) for k, v in vars(m).items() if isinstance(v, PLAIN)] for m in modules]
        self.print = [(id(t), t.data_ptr()) for t in held], settings
        is_plain = all(t.device.type == "cpu" and t.dtype in KINDS for t in held)
        has_hooks = any(m._forward_hooks or m._forward_pre_hooks for m in modules)
        self.may_repeat = is_plain and not has_hooks and not torch.is_autocast_enabled("cpu") and model not in _REFUSED


PLAIN = (int, float, str, tuple, type(None))


def recorded_step(survey: Survey, owner: object, memory: Memory, rows: int, has_valid: bool) -> Step | None:
    """Give a recorded step that is nobody else's, and that has been seen to do what the model does; None: it does not.

    A recording belongs to its owner as long as that lives.
    """
    with _LOCK:  # of two threads one records, the other waits
        steps = _RECORDED.setdefault(survey.model, [])
        if any(step.print != survey.print for step in steps):
            steps.clear()
        found = next((step for step in steps if step.owner() is None and step.fits(memory, rows, has_valid)), None)
        if found is None:
            found = _record(survey, memory, rows, has_valid)
            if found is None:
                return None
            steps.append(found)
            del steps[:-MOST]
        found.owner = ref(owner)
    found.load(memory)
    return found


def _record(survey: Survey, memory: Memory, rows: int, has_valid: bool) -> Step | None:
    try:
        found = Step(survey.model, memory, rows, has_valid)
        found.prove(survey.model, memory)
    except (ContractError, Unsettled):
        raise
    except Exception as error:  # whatever it is, the model itself can still be asked
        _REFUSED[survey.model] = f"{type(error).__name__}: {error}"
        return None
    found.print = survey.print
    return found


def refusal(model: nn.Module) -> str | None:
    """Say why a model's steps are not repeated; None: they are, or nobody asked."""
    return _REFUSED.get(model)


def _outside(operations: list[Operation], own: list[Tensor]) -> set[int]:
    """Give the storages of what is read but neither made here nor a step's own: weights."""
    made = {_storage(t) for o in operations for t in o.given if not o.is_view}
    return {_storage(t) for o in operations for t in o.read} - made - {_storage(t) for t in own}


def _when(operations: list[Operation], outside: set[int], changing: list[Tensor], leaves: list[Tensor]) -> list[int]:
    """Say of each operation when it must be done again.

    What comes from outside, the weights, may change at any time, and nothing would say so: fused optimisers write to
    them without a trace. What is made of them is made anew with every id.
    """
    level = dict.fromkeys(outside, ALWAYS) | {_storage(t): LOADED for t in leaves}
    level |= {_storage(t): ALWAYS for t in changing}
    level |= {_storage(t): ALWAYS for o in operations for t in o.written}
    when = []
    for o in operations:
        at = max((level.get(_storage(t), NEVER) for t in (*o.read, *o.given)), default=NEVER)
        at = ALWAYS if torch.Tag.nondeterministic_seeded in o.does.tags else at
        for t in o.given:
            level[_storage(t)] = max(at, level.get(_storage(t), NEVER))
        when.append(NEVER if o.is_view else at)
    return when


def _needed(operations: list[Operation], wanted: list[Tensor]) -> list[Operation]:
    """Leave out what nothing wanted depends on."""
    storages, kept = {_storage(t) for t in wanted}, []
    for o in reversed(operations):
        if any(_storage(t) in storages for t in (*o.given, *o.written)):
            storages |= {_storage(t) for t in o.read}
            kept.append(o)
    return kept[::-1]


def _moves(moved: list[tuple[Tensor, Tensor]], homes: set[int]) -> list[Call]:
    """Bring what a step remembers to where the next one looks for it."""
    aside: list[Call] = []
    for i, (old, new) in enumerate(moved):
        if _storage(new) in homes:  # it looks at a place that may be overwritten before it is read
            moved[i] = old, new.clone()
            aside.append((moved[i][1].copy_, (new,)))
    return aside + [(np.copyto, (array(old), array(new))) for old, new in moved]


def _tensors(tree: Any) -> list[Tensor]:
    return [t for t in _pytree.tree_leaves(tree) if isinstance(t, Tensor)]


def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata


def _lists(memory: Memory) -> Iterator[Tensor]:
    """Give the lists (B, S, N, H) in a memory."""
    for part in memory.within():
        yield from (t for _, t, axis in part._parts() if axis == 1 and isinstance(t, Tensor) and t.dim() == 4)


def _by_head(t: Tensor) -> Tensor:
    """Copy a list (B, S, N, H) so that each head's steps lie side by side: products then need no copy of it."""
    return t.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _is_near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), 1e-3, 1e-4, equal_nan=True)


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a is b or (
        _storage(a) == _storage(b) and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    )
