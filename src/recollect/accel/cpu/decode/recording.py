"""What torch did in one step, recorded: operations, what each read, and what it returned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from recollect.accel.model_survey import storage_of

aten = torch.ops.aten
BY_SHAPE = (aten.new_zeros.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
DECIDES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
NEVER, LOADED, ALWAYS = 0, 1, 2  # when an operation is repeated: never, for another memory, for every id


class Operation:
    """What torch did once: an operation, what it read, and what it returned."""

    def __init__(self, does: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> None:
        self.does = does
        self.args = args
        self.kwargs = kwargs
        self.read = [] if does in BY_SHAPE else tensors_of((args, kwargs))
        self.given = tensors_of(given)
        written = [
            a for a, s in zip(args, does._schema.arguments, strict=False) if s.alias_info and s.alias_info.is_write
        ]
        self.written = tensors_of(written)

    @property
    def is_view(self) -> bool:
        """Whether it returns views of its inputs."""
        seen = {storage_of(t) for t in self.read}
        return not self.written and bool(self.given) and all(storage_of(t) in seen for t in self.given)

    @property
    def decides(self) -> bool:
        """Whether what happens next, or a shape, depends on values."""
        is_gather = self.does is aten.index.Tensor and all(t.dtype != torch.bool for t in self.read[1:])
        return bool(DECIDES & set(self.does.tags)) and not is_gather

    def again(self) -> None:
        """Repeat it with torch, into the tensors that it returned the first time."""
        given = self.does(*self.args, **self.kwargs)
        if not self.written:
            for old, new in zip(self.given, tensors_of(given), strict=True):
                old.copy_(new)


class Recorder(TorchDispatchMode):
    """Records what torch does."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping it would first import it, which takes a second

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, does: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run it, and record it."""
        given = does(*args, **(kwargs or {}))
        self.operations.append(Operation(does, args, kwargs or {}, given))
        return given


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors in a tree."""
    return [t for t in _pytree.tree_leaves(tree) if isinstance(t, Tensor)]


def needed(operations: list[Operation], results: list[Tensor]) -> list[Operation]:
    """Return the operations that any of the results depends on."""
    storages = {storage_of(t) for t in results}
    kept = []
    for o in reversed(operations):
        if any(storage_of(t) in storages for t in (*o.given, *o.written)):
            storages |= {storage_of(t) for t in o.read}
            kept.append(o)
    return kept[::-1]


def schedule(operations: list[Operation], changing: list[Tensor], leaves: list[Tensor]) -> list[int]:
    """Return for each operation when it must be repeated: NEVER, LOADED or ALWAYS.

    `leaves` change with a new memory, `changing` with every id. Weights may change at any time without notice:
    fused optimisers write to them without a new version. What is computed from them is computed at every step.
    """
    made = {storage_of(t) for o in operations for t in o.given if not o.is_view}
    own = {storage_of(t) for t in (*changing, *leaves)}
    outside = {storage_of(t) for o in operations for t in o.read} - made - own
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
