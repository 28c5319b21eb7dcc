"""From tensors to launches: what the kernels in `cuda/` are given, and what they give back."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from recollect.accel.cuda.recurrent.chunks import Cuts
from recollect.accel.cuda.recurrent.launches import backward_launches, forward_launches
from recollect.accel.cuda.recurrent.plan import Chip, Chore, KernelPlan
from recollect.accel.cuda.recurrent.workspace import Extent, Room


class Machine(Protocol):
    """What can run a plan: a GPU, or an emulator of one."""

    chip: Chip
    told: ctypes.c_int  # which the host can read at any time; a kernel that gave up sets it

    def __hash__(self) -> int:
        """Each is itself: what was found for one is not found for another."""
        ...

    def fits(self, plan: KernelPlan, copies: int = 1) -> bool:
        """Whether the blocks of so many walks can all run at once."""
        ...

    def launch(self, plan: KernelPlan, arguments: ctypes.Structure) -> None:
        """Run it, in the order of the current stream."""
        ...

    def do(self, chore: Chore, count: int, arguments: ctypes.Structure) -> None:
        """Run a chore of so many things, in the order of the current stream."""
        ...


class Seen(NamedTuple):
    """What the walk forward leaves for the walk back."""

    kept: Room  # its gates, and c
    y: Tensor  # (T + 1, B, H), h_0 first, or last if the walk began at the end
    lengths: Tensor | None

    def addresses(self, machine: Machine, room: Room, lengths: Tensor | None) -> dict[str, int]:
        """Where all lies that a walk needs; of the lengths, what is left of them at each piece."""
        found = room.addresses | self.kept.addresses if room is not self.kept else room.addresses.copy()
        found["y"], found["told"] = self.y.data_ptr(), ctypes.addressof(machine.told)
        if lengths is not None:
            found["lengths"] = lengths.data_ptr()
        return found


class Forward:
    """A walk forward, in pieces: one launch each, or more where the batch asks for them.

    Gates replace the logits where it keeps them. A piece begins where the one before it ended: they run in order.
    `from_end`: the walk begins at the last step and ends at the first; so do its pieces.
    """

    def __init__(
        self,
        machine: Machine,
        plan: KernelPlan,
        extent: Extent,
        rooms: tuple[Room, Room],
        lengths: Tensor | None,
        *,
        keeps: bool,
        cuts: Cuts,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, (self.room, kept) = machine, plan, rooms
        self.pieces = forward_launches(plan, extent, cuts, keeps, from_end)
        y = kept.memory.new_empty((extent.steps + 1, extent.batch, extent.units))
        self.seen, self.lengths = Seen(kept, y, lengths), _left(lengths, cuts)
        self._addresses = self.seen.addresses(machine, self.room, self.lengths)

    def walk(self, number: int) -> None:
        """Walk through a piece."""
        for launch in self.pieces[number]:
            self.machine.launch(self.plan, launch.fill(self._addresses))

    def last(self, name: str, dtype: torch.dtype) -> Tensor:
        """Copy the last h or c (B, H): "last_h", "last_c"."""
        _, batch, units = self.seen.y.shape
        return self.room.floats(name, batch, units, after=(len(self.pieces) - 1) * batch).to(dtype, copy=True)


class Backward:
    """A walk back, in pieces: what flows out of the beginning of one flows into the end of the one before it.

    Gives, in its room, the gradients at all logits (T, B, H, S), at h_0 and c_0 (B, H), and at the bias (pieces x
    pairs, H, S): each pair of rows sums its own, over the steps of a piece, always in the same order.
    `from_end`: the walk forward began there, so that this one ends there.
    """

    def __init__(
        self,
        machine: Machine,
        plan: KernelPlan,
        extent: Extent,
        seen: Seen,
        room: Room,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        *,
        cuts: Cuts,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, self.seen, self.room = machine, plan, seen, room
        d_y, (d_h, d_c) = _readable(d_y, extent.dtype), (_readable(t, torch.float32, whole=True) for t in d_last)
        strides = (0, 0) if d_y is None else d_y.stride()[:2]
        self.pieces = backward_launches(plan, extent, cuts, strides, from_end)
        self.lengths = _left(seen.lengths, cuts)
        self.given = {"d_y": d_y, "d_last_h": d_h, "d_last_c": d_c}  # held while it is read
        self._addresses = seen.addresses(machine, room, self.lengths)
        self._addresses |= {name: t.data_ptr() for name, t in self.given.items() if t is not None}

    def walk(self, number: int) -> None:
        """Walk back through a piece."""
        for launch in self.pieces[number]:
            self.machine.launch(self.plan, launch.fill(self._addresses))

    def d_first(self, name: str, dtype: torch.dtype) -> Tensor:
        """Copy the gradient at h_0 or c_0 (B, H): "d_hidden", "d_cell"."""
        _, batch, units = self.seen.y.shape
        return self.room.floats(name, batch, units).to(dtype, copy=True)


def _left(lengths: Tensor | None, cuts: Cuts) -> Tensor | None:
    """What is left of the rows' lengths where each piece begins (pieces, B): negative where a row has ended before."""
    if lengths is None:
        return None
    return lengths[None] if len(cuts) == 2 else torch.stack([lengths - start for start in cuts[:-1]])


def _readable(t: Tensor | None, dtype: torch.dtype, *, whole: bool = False) -> Tensor | None:
    """Return the gradient in the dtype that the kernel reads, a row's units beside each other."""
    if t is None:
        return None
    t = t.to(dtype)
    return t.contiguous() if whole or t.stride(-1) != 1 else t
