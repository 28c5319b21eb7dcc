"""Rows of a memory that its owner replaces: what a batch needs whose rows join and leave while others stay.

`cat` and `select` copy every row. The owner of a batch writes a new row over one that has ended instead, so that a row
that joins costs its own bytes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recollect.core.memory import Memory

LAYOUT = ("reserved", "in_place")  # hints on how the slots are laid out: they stay as the owner made them


def fits(memory: Memory, new: Memory) -> bool:
    """Return whether the rows of `new` have no more slots than `memory` has."""
    both = zip(memory._parts(), new._parts(), strict=True)
    return all(_part_fits(a, b, axis) for (_, a, axis), (_, b, _) in both)


def place(memory: Memory, rows: Sequence[int], new: Memory) -> Memory:
    """Write the rows of `new` over `rows` of a memory, in place, and return it; only for the memory's sole owner."""
    index = memory._index(rows)
    both = zip(memory._parts(), new._parts(), strict=True)
    parts = {name: _placed(old, part, axis, index) for (name, old, axis), (_, part, _) in both}
    return memory._with(**parts, **_default_hints(memory))


def same_layout(memory: Memory, other: Memory) -> bool:
    """Return whether two memories are of one kind and size, so that their rows can share a batch."""
    if type(memory) is not type(other) or memory._identity() != other._identity():
        return False
    both = zip(memory._parts(), other._parts(), strict=True)
    return all(_same_part(a, b, axis) for (_, a, axis), (_, b, _) in both)


def steps_read(memory: Memory) -> list[int]:
    """Return how many steps each row has read, where its memory counts them, else zeros."""
    counted = [t for name, t in memory.tensors().items() if _counts_steps(name, t)]
    return torch.stack(counted).amax(0).tolist() if counted else [0] * memory.batch_size


def forget_rows(memory: Memory, rows: Sequence[int]) -> Memory:
    """Set the number of steps that rows have read to 0, in place, and return the memory: what they hold is not read."""
    for name, t in memory.tensors().items():
        if _counts_steps(name, t):
            t.index_fill_(0, memory._index(rows), 0)
    return _without_hints(memory)


def _without_hints(memory: Memory) -> Memory:
    return memory._map(lambda t: t, _without_hints)._with(**_default_hints(memory))


def _default_hints(memory: Memory) -> dict[str, object]:
    return {f.name: f.default for f in memory._statics() if "hint" in f.metadata and f.name not in LAYOUT}


def _counts_steps(name: str, t: Tensor) -> bool:
    return name.rpartition(".")[2] == "length" and t.dim() == 1


def _part_fits(old: Any, new: Any, axis: int | None) -> bool:
    if isinstance(old, Tensor):
        return axis is None or new.shape[axis] <= old.shape[axis]
    if isinstance(old, Memory):
        return fits(old, new)
    return all(_part_fits(a, b, axis) for a, b in zip(old, new, strict=True))


def _placed(old: Any, new: Any, axis: int | None, rows: Tensor) -> Any:
    if isinstance(old, Tensor):
        size = None if axis is None else new.shape[axis]
        front = old if axis is None or size is None else old.narrow(axis, 0, size)
        front.index_copy_(0, rows, new)
        if axis is not None and size is not None:  # a source's mask must not stay of the row before
            old.narrow(axis, size, old.shape[axis] - size).index_fill_(0, rows, 0)
        return old
    if isinstance(old, Memory):
        return place(old, rows.tolist(), new)
    return tuple(_placed(a, b, axis, rows) for a, b in zip(old, new, strict=True))


def _same_part(a: Any, b: Any, axis: int | None) -> bool:
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.dtype != b.dtype or a.dim() != b.dim():
            return False
        return all(i in (0, axis) or a.shape[i] == b.shape[i] for i in range(a.dim()))
    if isinstance(a, Memory):
        return isinstance(b, Memory) and same_layout(a, b)
    return isinstance(b, tuple) and len(a) == len(b) and all(_same_part(x, y, axis) for x, y in zip(a, b, strict=True))
