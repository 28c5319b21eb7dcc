"""Reserved slots of growing memories: how many to reserve, and how many are filled, from shapes alone.

A decode loop owns a memory with reserved slots. A settled memory is copied into its front, and the result is cut to the
slots that are filled. Both follow from shapes, so that nothing is padded and there is no device sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recollect.core.capture import copy_together
from recollect.core.growing import Growing
from recollect.core.memory import Memory

HINTS = ("even", "reserved", "in_place")  # the fields that `reserve` changes


def slots_for(memory: Memory, steps: int) -> int:
    """Return the number of slots to reserve in a settled memory for at most `steps` more steps.

    Sizes are 64, 128, 256 … slots, so that shapes recur. Beyond 1024 at most as many are reserved as are filled: every
    step attends over all slots.
    """
    longest = max((part.slots for part in _growing(memory)), default=0)
    size = 1 << (max(longest + min(steps, max(longest, 1024)), 64) - 1).bit_length()
    return size - longest


def has_reserve(reserved: Memory, memory: Memory, steps: int) -> bool:
    """Return whether `reserved` has the layout of `memory.reserve(steps, in_place=True)`."""
    if type(reserved) is not type(memory):
        return False
    spared: tuple[str, ...] = ()
    size = None
    if isinstance(memory, Growing):
        spared, size = HINTS, memory.slots + steps if memory.limit is None else memory.limit
    names = [f.name for f in memory._statics() if f.name not in spared]
    if any(getattr(reserved, name) != getattr(memory, name) for name in names):
        return False
    both = zip(reserved._parts(), memory._parts(), strict=True)
    return all(_has_reserve(a, b, steps, None if axis is None else size) for (_, a, axis), (_, b, _) in both)


def _has_reserve(reserved: Any, part: Any, steps: int, size: int | None) -> bool:
    if isinstance(part, Tensor):
        shape = part.shape if size is None else (len(part), size, *part.shape[2:])
        return bool(reserved.shape == shape and reserved.dtype == part.dtype)
    if isinstance(part, Memory):
        return has_reserve(reserved, part, steps)
    return len(reserved) == len(part) and all(
        _has_reserve(a, b, steps, size) for a, b in zip(reserved, part, strict=True)
    )


def filled(memory: Memory) -> list[int] | None:
    """Return the number of filled slots of each growing part of a settled memory; None: it differs between rows."""
    parts = _growing(memory)
    return [part.slots for part in parts] if all(part.even for part in parts) else None


def as_filled(memory: Memory, slots: list[int] | None) -> Memory:
    """Return a memory without its reserved slots, given the number of filled ones of each growing part."""
    return memory if slots is None else _cut(memory, iter(slots))


def _cut(memory: Memory, slots: Iterator[int]) -> Memory:
    if not isinstance(memory, Growing):
        return memory._map(lambda t: t, lambda m: _cut(m, slots))
    size = next(slots)  # may exceed the slots of a part with a limit: then all are filled
    lists = {name: t[:, :size] for name, t in memory._lists()}
    return memory._with(**lists, even=True, reserved=False, in_place=False)


def _growing(memory: Memory) -> list[Growing]:
    return [part for part in memory.within() if isinstance(part, Growing)]


# ---- copies --------------------------------------------------------------------------------------


def copied(memory: Memory) -> Memory:
    """Return a copy, through which gradients flow."""
    leaves = memory.leaves()
    if any(t.requires_grad for t in leaves):
        copies = [t.clone() for t in leaves]
    else:
        copies = [torch.empty_like(t) for t in leaves]
        copy_together(copies, leaves)
    return with_leaves(memory, iter(copies))


def with_leaves(memory: Memory, leaves: Iterator[Tensor]) -> Memory:
    """Return a memory of the same layout with other tensors, in the order of `leaves()`."""
    return memory._map(lambda t: next(leaves), lambda m: with_leaves(m, leaves))


def front(reserved: Tensor, t: Tensor) -> Tensor:
    """Return the front of `reserved` to copy t into, with the strides of t where possible: see `copy_together`."""
    if reserved.shape == t.shape:
        return reserved
    is_one = len(reserved) == 1 and reserved.stride()[1:] == t.stride()[1:]  # the stride between rows does not matter
    return reserved.as_strided(t.shape, t.stride()) if is_one else reserved[:, : t.shape[1]]
