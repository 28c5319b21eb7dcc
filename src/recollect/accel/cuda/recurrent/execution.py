"""From tensors to launches: the arguments of the kernels in `cuda/`, and their results."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from recollect.accel.cuda.recurrent.chunks import Cuts
from recollect.accel.cuda.recurrent.launches import backward_launches, forward_launches
from recollect.accel.cuda.recurrent.plan import Chip, Chore, KernelPlan
from recollect.accel.cuda.recurrent.workspace import Extent, Workspace


class Machine(Protocol):
    """A device that can run a plan: a GPU, or an emulator of one."""

    chip: Chip
    told: ctypes.c_int  # the host can read it at any time; a kernel that gave up sets it

    def __hash__(self) -> int:
        """Return the identity: what was computed for one is not reused for another."""
        ...

    def fits(self, plan: KernelPlan, copies: int = 1) -> bool:
        """Return whether the blocks of so many copies of a kernel can all run at once."""
        ...

    def launch(self, plan: KernelPlan, arguments: ctypes.Structure) -> None:
        """Launch a plan's kernel on the current stream."""
        ...

    def do(self, chore: Chore, count: int, arguments: ctypes.Structure) -> None:
        """Launch a chore over `count` items on the current stream."""
        ...


class Seen(NamedTuple):
    """What the forward loop leaves for the backward loop."""

    kept: Workspace  # its gates, and c
    y: Tensor  # (T + 1, B, H), h_0 first, or last if the loop began at the end
    lengths: Tensor | None

    def addresses(self, machine: Machine, workspace: Workspace, lengths: Tensor | None) -> dict[str, int]:
        """Return the address of each part that a loop needs; `lengths` is what is left of them at each chunk."""
        found = workspace.addresses | self.kept.addresses if workspace is not self.kept else workspace.addresses.copy()
        found["y"], found["told"] = self.y.data_ptr(), ctypes.addressof(machine.told)
        if lengths is not None:
            found["lengths"] = lengths.data_ptr()
        return found


class Forward:
    """The forward time loop, in chunks: one launch each, or more where the batch needs them.

    Gates replace the logits where `keeps` is set. A chunk begins with the state that the one before it ended with: they
    run in order. `from_end`: the loop begins at the last step and ends at the first; so do its chunks.
    """

    def __init__(
        self,
        machine: Machine,
        plan: KernelPlan,
        extent: Extent,
        workspaces: tuple[Workspace, Workspace],
        lengths: Tensor | None,
        *,
        keeps: bool,
        cuts: Cuts,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, (self.workspace, kept) = machine, plan, workspaces
        self.chunks = forward_launches(plan, extent, cuts, keeps, from_end)
        y = kept.memory.new_empty((extent.steps + 1, extent.batch, extent.units))
        self.seen, self.lengths = Seen(kept, y, lengths), _left(lengths, cuts)
        self._addresses = self.seen.addresses(machine, self.workspace, self.lengths)

    def run(self, number: int) -> None:
        """Launch the loop over a chunk."""
        for launch in self.chunks[number]:
            self.machine.launch(self.plan, launch.fill(self._addresses))

    def last(self, name: str, dtype: torch.dtype) -> Tensor:
        """Return a copy of the last h or c (B, H): "last_h", "last_c"."""
        _, batch, units = self.seen.y.shape
        return self.workspace.floats(name, batch, units, after=(len(self.chunks) - 1) * batch).to(dtype, copy=True)


class Backward:
    """The backward time loop, in chunks: the gradient of a chunk's first state enters the end of the chunk before it.

    Writes, in its workspace, the gradients of all logits (T, B, H, S), of h_0 and c_0 (B, H), and of the bias (chunks x
    pairs, H, S): each pair of rows sums its own, over the steps of a chunk, always in the same order.
    `from_end`: the forward loop began there, so that this one ends there.
    """

    def __init__(
        self,
        machine: Machine,
        plan: KernelPlan,
        extent: Extent,
        seen: Seen,
        workspace: Workspace,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        *,
        cuts: Cuts,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, self.seen, self.workspace = machine, plan, seen, workspace
        d_y, (d_h, d_c) = _readable(d_y, extent.dtype), (_readable(t, torch.float32, whole=True) for t in d_last)
        strides = (0, 0) if d_y is None else d_y.stride()[:2]
        self.chunks = backward_launches(plan, extent, cuts, strides, from_end)
        self.lengths = _left(seen.lengths, cuts)
        self.given = {"d_y": d_y, "d_last_h": d_h, "d_last_c": d_c}  # held while it is read
        self._addresses = seen.addresses(machine, workspace, self.lengths)
        self._addresses |= {name: t.data_ptr() for name, t in self.given.items() if t is not None}

    def run(self, number: int) -> None:
        """Launch the backward loop over a chunk."""
        for launch in self.chunks[number]:
            self.machine.launch(self.plan, launch.fill(self._addresses))

    def d_first(self, name: str, dtype: torch.dtype) -> Tensor:
        """Return a copy of the gradient of h_0 or c_0 (B, H): "d_hidden", "d_cell"."""
        _, batch, units = self.seen.y.shape
        return self.workspace.floats(name, batch, units).to(dtype, copy=True)


def _left(lengths: Tensor | None, cuts: Cuts) -> Tensor | None:
    """Return what is left of the rows' lengths where each chunk begins (chunks, B): negative where a row has ended."""
    if lengths is None:
        return None
    return lengths[None] if len(cuts) == 2 else torch.stack([lengths - start for start in cuts[:-1]])


def _readable(t: Tensor | None, dtype: torch.dtype, *, whole: bool = False) -> Tensor | None:
    """Return the gradient in the dtype that the kernel reads, contiguous along a row's units."""
    if t is None:
        return None
    t = t.to(dtype)
    return t.contiguous() if whole or t.stride(-1) != 1 else t
