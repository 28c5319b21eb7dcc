"""One layer's forward and backward pass, chunk by chunk: inputs, matrix products, time loop and results."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda.recurrent.chunks import Cuts
from recollect.accel.cuda.recurrent.execution import Backward, Forward, Machine, Seen
from recollect.accel.cuda.recurrent.inputs import prepare_backward, prepare_forward
from recollect.accel.cuda.recurrent.plan import KernelPlan
from recollect.accel.cuda.recurrent.weight_gradients import WeightProducts, weight_gradients
from recollect.accel.cuda.recurrent.workspace import Extent, Layout, Workspace

Results = tuple[Tensor | None, Tensor, Tensor | None]  # y (B, T, H), the last h and c (B, H)


class Placement(NamedTuple):
    """How time loops are placed on a chip."""

    machine: Machine
    plan: KernelPlan
    at_once: int  # concurrent loops
    cuts: Cuts  # of time, into chunks


class Setting(NamedTuple):
    """What several layers of the same shape have in common."""

    extent: Extent  # of the first; the others may have another width, and no x of their own
    forward: Placement
    backward: Placement | None  # where gradients are needed
    is_stack: bool  # each layer reads the outputs of the one before it, and has no x of its own
    both_directions: bool = False  # the second of two layers reads the first one's x, from the last step to the first


class ForwardPass:
    """One layer's forward pass: for each chunk the matmul W_ih x, then the time loop."""

    def __init__(
        self,
        setting: Setting,
        extent: Extent,
        given: CellInputs,
        lengths: Tensor | None,
        x: Tensor | None,
        *,
        from_end: bool,
    ) -> None:
        self.placement, self.extent, self.lengths, self.from_end = setting.forward, extent, lengths, from_end
        self.rows = ChunkRows(self.placement.cuts, extent.batch, from_end)
        self.keeps = setting.backward is not None
        ahead = (self.placement.machine, self.placement.plan, given, extent, self.rows.chunks)
        self.workspaces = _, kept = prepare_forward(*ahead, keeps=self.keeps)
        self.weight = kept.crossed("slotted", extent.columns, extent.width)  # (D, H·S)
        self._x = x

    @property
    def x(self) -> Tensor:
        """Its input, time-major (T·B, D), from another layer's workspace or its own."""
        shape = (self.extent.steps * self.extent.batch, self.extent.width)
        return self.workspaces[1].matrix("by_time", *shape) if self._x is None else self._x

    @cached_property
    def loop(self) -> Forward:
        """The time loop: made when first used, so that the first matmul has been launched by then."""
        machine, plan, _, cuts = self.placement
        given = (self.extent, self.workspaces, self.lengths)
        return Forward(machine, plan, *given, keeps=self.keeps, cuts=cuts, from_end=self.from_end)

    @property
    def y(self) -> Tensor:
        """All outputs, in the order of x (T, B, H)."""
        return after_steps(self.loop.seen.y, from_end=self.from_end)

    def allocate(self) -> None:
        """Allocate what the caller receives, before the first loop."""
        _ = self.loop

    def multiply(self, chunk: int) -> None:
        """Compute the part of a chunk's logits that depends on x alone."""
        (start, rows), kept, extent = self.rows.span(chunk), self.workspaces[1], self.extent
        # One view each, not the whole and then a slice: the first loop waits for this.
        x = kept.matrix("by_time", rows, extent.width, after=start) if self._x is None else self.rows.of(self._x, chunk)
        logits = kept.matrix("gates", rows, extent.columns, after=start)
        torch.mm(x, self.weight, out=logits)

    def step(self, chunk: int) -> None:
        """Run the time loop over a chunk."""
        self.loop.run(chunk)

    @property
    def kept(self) -> tuple[Tensor | None, ...]:
        """All fields of `KeptForBackward` but W_hh."""
        x = None if self.extent.has_x else self.x
        return self.workspaces[1].memory, self.loop.seen.y, self.lengths, x

    def found(self, given: CellInputs, like: Tensor, *, has_y: bool) -> Results:
        """Return y and the last states, in the dtypes of the initial ones; where none were given, in that of `like`."""
        h = self.loop.last("last_h", (like if given.h is None else given.h).dtype)
        c = self.loop.last("last_c", (like if given.c is None else given.c).dtype) if self.extent.has_cells else None
        return self.y.transpose(0, 1) if has_y else None, h, c


class KeptForBackward(NamedTuple):
    """What a layer saves for backward."""

    memory: Tensor  # of the workspace that is kept
    y: Tensor  # (T + 1, B, H)
    lengths: Tensor | None
    x: Tensor | None  # (T·B, D), where another layer's workspace holds it
    w_hh: Tensor


class BackwardPass:
    """One layer's backward pass: for each chunk the time loop, then the matmuls that need its gradients."""

    def __init__(
        self,
        placement: Placement,
        extent: Extent,
        layout: Layout,
        kept: KeptForBackward,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        wanted: Any,
        *,
        is_above: bool,
        from_end: bool,
    ) -> None:
        machine, plan, _, cuts = self.placement = placement
        self.extent, self.kept, self.wanted, self.from_end = extent, kept, wanted, from_end
        self.rows = ChunkRows(cuts, extent.batch, from_end)
        self.workspace = prepare_backward(machine, plan, kept.w_hh, extent, wanted, self.rows.chunks)
        self.seen = Seen(Workspace(kept.memory, layout), kept.y, kept.lengths)
        self.loop = Backward(
            machine, plan, extent, self.seen, self.workspace, d_y, d_last, cuts=cuts, from_end=from_end
        )
        self.has_d_x = is_above or wanted.x is not None

    @cached_property
    def d_x(self) -> Tensor | None:
        """The gradient of x (T, B, D), where it is needed or a layer below reads it."""
        shape = (self.extent.steps, self.extent.batch, self.extent.width)
        return self.kept.y.new_empty(shape) if self.has_d_x else None

    def allocate(self) -> None:
        """Allocate what other layers read, before the first loop."""
        _ = self.d_x

    def step(self, chunk: int) -> None:
        """Run the backward loop over a chunk."""
        self.loop.run(chunk)

    def pass_down(self, chunk: int) -> None:
        """Compute a chunk's dx."""
        if self.d_x is not None:
            weight = self.seen.kept.matrix("slotted", self.extent.columns, self.extent.width)
            torch.mm(self.rows.of(self.flat, chunk), weight, out=self.rows.of(self.d_x.flatten(0, 1), chunk))

    def weigh(self, chunk: int) -> None:
        """Add a chunk's part of dW."""
        self.products.add(*(self.rows.of(t, chunk) for t in (self.flat, self.x, self.before)))

    @cached_property
    def flat(self) -> Tensor:
        """The gradients of all logits (T·B, H·S)."""
        return self.workspace.matrix("d_logits", self.extent.steps * self.extent.batch, self.extent.columns)

    @cached_property
    def x(self) -> Tensor:
        """The layer's input (T·B, D)."""
        shape = (self.extent.steps * self.extent.batch, self.extent.width)
        return self.seen.kept.matrix("by_time", *shape) if self.kept.x is None else self.kept.x

    @cached_property
    def before(self) -> Tensor:
        """The states before each step (T·B, H)."""
        return before_steps(self.kept.y, from_end=self.from_end).flatten(0, 1)

    @cached_property
    def products(self) -> WeightProducts:
        """Buffers for the gradients of the weights."""
        columns, width, units = self.extent.columns, self.extent.width, self.extent.units
        part = self.workspace.matrix if self.rows.chunks == 1 else self.workspace.floats
        ih = part("product_ih", columns, width) if self.wanted.w_ih else None
        hh = part("product_hh", columns, units) if self.wanted.w_hh else None
        return WeightProducts(ih, hh)

    def found(self) -> list[Tensor | None]:
        """Return all gradients, in the order of `CellInputs`; None where they are not needed."""
        extent, wanted = self.extent, self.wanted
        d_bias = self.workspace.floats("d_sums", self.rows.chunks * extent.pairs, extent.columns)
        shape = (extent.width, extent.units)
        d_weights = weight_gradients(self.placement.machine, self.placement.plan, self.products, d_bias, shape, wanted)
        d_x = self.d_x.transpose(0, 1) if self.d_x is not None and wanted.x else None
        d_h = self.loop.d_first("d_hidden", wanted.h) if wanted.h else None
        return [d_x, d_h, self.loop.d_first("d_cell", wanted.c) if wanted.c else None, *d_weights]


def after_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Return, of all states (T + 1, B, H), those after each step (T, B, H)."""
    return states[:-1] if from_end else states[1:]


def before_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Return, of all states (T + 1, B, H), those before each step (T, B, H)."""
    return states[1:] if from_end else states[:-1]


class ChunkRows(NamedTuple):
    """Where a chunk lies among all rows of all steps (T·B)."""

    cuts: Cuts
    batch: int
    from_end: bool  # the first chunk is the last in time

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.cuts) - 1

    def span(self, chunk: int) -> tuple[int, int]:
        """Return where the rows of a chunk begin, and how many they are."""
        start, end = self.cuts[chunk : chunk + 2]
        return (self.cuts[-1] - end if self.from_end else start) * self.batch, (end - start) * self.batch

    def of(self, t: Tensor, chunk: int) -> Tensor:
        """Return the rows of a chunk; the tensor itself where there is one chunk."""
        if self.chunks == 1:
            return t
        start, rows = self.span(chunk)
        return t[start : start + rows]
