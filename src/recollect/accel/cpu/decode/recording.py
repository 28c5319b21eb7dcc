"""What torch did in one step, written down: operations, what each read, and what it gave."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from recollect.accel.cpu.decode.lowering import Call, lower, product

aten = torch.ops.aten
BY_SHAPE = (aten.new_zeros.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
PRODUCTS = (aten.mm.default, aten.addmm.default)
DECIDES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Operation:
    """What torch did once: an operation, what it read, and what it gave."""

    def __init__(self, does: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> None:
        self.does, self.args, self.kwargs = does, args, kwargs
        self.read = [] if does in BY_SHAPE else tensors_of((args, kwargs))
        self.given = tensors_of(given)
        written = [
            a for a, s in zip(args, does._schema.arguments, strict=False) if s.alias_info and s.alias_info.is_write
        ]
        self.written = tensors_of(written)

    @property
    def is_view(self) -> bool:
        """Whether it only looks at what it read."""
        seen = {storage_of(t) for t in self.read}
        return not self.written and bool(self.given) and all(storage_of(t) in seen for t in self.given)

    @property
    def decides(self) -> bool:
        """Whether what happens next, or a shape, depends on values."""
        is_gather = self.does is aten.index.Tensor and all(t.dtype != torch.bool for t in self.read[1:])
        return bool(DECIDES & set(self.does.tags)) and not is_gather

    def calls(self, rows: int, outside: set[int], in_c: bool = False) -> list[Call]:
        """Give the calls that do it again, in place; `outside` are the weights' storages.

        `in_c`: products of one row with large matrices are C's.
        """
        if self.does in PRODUCTS:
            *bias, x, y = self.args
            found = product(self.given[0], x, y, bias[0] if bias else None, storage_of(y) in outside, in_c)
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
            for old, new in zip(self.given, tensors_of(given), strict=True):
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


def tensors_of(tree: Any) -> list[Tensor]:
    """Give the tensors in a tree."""
    return [t for t in _pytree.tree_leaves(tree) if isinstance(t, Tensor)]


def storage_of(t: Tensor) -> int:
    """Name what a tensor looks at: tensors that share it share memory."""
    return t.untyped_storage()._cdata
