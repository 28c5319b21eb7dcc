"""One layer's way forward and its way back, piece by piece: what is prepared, multiplied, walked through and given."""

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
from recollect.accel.cuda.recurrent.workspace import Extent, Layout, Room

Found = tuple[Tensor | None, Tensor, Tensor | None]  # y (B, T, H), the last h and c (B, H)


class Placement(NamedTuple):
    """How walks are laid over a chip."""

    machine: Machine
    plan: KernelPlan
    at_once: int  # walks
    cuts: Cuts  # pieces of time


class Setting(NamedTuple):
    """What several layers of the same shape have in common."""

    extent: Extent  # of the first; the others may have another width, and no x of their own
    ahead: Placement
    back: Placement | None  # where gradients are wanted
    is_pile: bool  # each layer reads what the one before it gives, and has no x of its own
    both_ways: bool = False  # the second of two layers reads the first one's x, from the last step to the first


class Reading:
    """One layer's way forward: for each piece the product W_ih x, then the walk."""

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
        self.way, self.extent, self.lengths, self.from_end = setting.ahead, extent, lengths, from_end
        self.rows = ChunkRows(self.way.cuts, extent.batch, from_end)
        self.keeps = setting.back is not None
        ahead = (self.way.machine, self.way.plan, given, extent, self.rows.pieces)
        self.rooms = _, kept = prepare_forward(*ahead, keeps=self.keeps)
        self.weight = kept.crossed("slotted", extent.columns, extent.width)  # (D, H·S)
        self._x = x

    @property
    def x(self) -> Tensor:
        """What it reads (T·B, D), as another layer has laid it out or this one."""
        shape = (self.extent.steps * self.extent.batch, self.extent.width)
        return self.rooms[1].matrix("by_time", *shape) if self._x is None else self._x

    @cached_property
    def walk(self) -> Forward:
        """The walk itself: made when it is wanted, so that the first product is on its way by then."""
        machine, plan, _, cuts = self.way
        how: Any = {"keeps": self.keeps, "cuts": cuts, "from_end": self.from_end}
        return Forward(machine, plan, self.extent, self.rooms, self.lengths, **how)

    @property
    def y(self) -> Tensor:
        """All outputs, in the order of x (T, B, H)."""
        return after_steps(self.walk.seen.y, from_end=self.from_end)

    def allocate(self) -> None:
        """Ask for the memory that the caller is given, before anybody walks."""
        _ = self.walk

    def multiply(self, piece: int) -> None:
        """Find a piece's logits, as far as they hang on x."""
        (start, rows), kept, extent = self.rows.span(piece), self.rooms[1], self.extent
        # One view each, not the whole and then a part: the first walk waits for this.
        x = kept.matrix("by_time", rows, extent.width, after=start) if self._x is None else self.rows.of(self._x, piece)
        logits = kept.matrix("gates", rows, extent.columns, after=start)
        torch.mm(x, self.weight, out=logits)

    def step(self, piece: int) -> None:
        """Walk through a piece."""
        self.walk.walk(piece)

    @property
    def kept(self) -> tuple[Tensor | None, ...]:
        """All of `Kept` but W_hh."""
        x = None if self.extent.has_x else self.x
        return self.rooms[1].memory, self.walk.seen.y, self.lengths, x

    def found(self, given: CellInputs, like: Tensor, *, has_y: bool) -> Found:
        """What the caller wants of it, in the dtypes of what was given; where no state was, in that of `like`."""
        h = self.walk.last("last_h", (like if given.h is None else given.h).dtype)
        c = self.walk.last("last_c", (like if given.c is None else given.c).dtype) if self.extent.has_cells else None
        return self.y.transpose(0, 1) if has_y else None, h, c


class Kept(NamedTuple):
    """What a layer keeps for the way back."""

    memory: Tensor  # of the room that is kept
    y: Tensor  # (T + 1, B, H)
    lengths: Tensor | None
    x: Tensor | None  # (T·B, D), where another layer has laid it out
    w_hh: Tensor


class Returning:
    """One layer's way back: for each piece the walk, then the products that it allows."""

    def __init__(
        self,
        way: Placement,
        extent: Extent,
        layout: Layout,
        kept: Kept,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        wanted: Any,
        *,
        is_above: bool,
        from_end: bool,
    ) -> None:
        machine, plan, _, cuts = self.way = way
        self.extent, self.kept, self.wanted, self.from_end = extent, kept, wanted, from_end
        self.rows = ChunkRows(cuts, extent.batch, from_end)
        self.room = prepare_backward(machine, plan, kept.w_hh, extent, wanted, self.rows.pieces)
        self.seen = Seen(Room(kept.memory, layout), kept.y, kept.lengths)
        self.walk = Backward(machine, plan, extent, self.seen, self.room, d_y, d_last, cuts=cuts, from_end=from_end)
        self.has_d_x = is_above or wanted.x is not None

    @cached_property
    def d_x(self) -> Tensor | None:
        """The gradient at x (T, B, D), where it is wanted or a layer below reads it."""
        shape = (self.extent.steps, self.extent.batch, self.extent.width)
        return self.kept.y.new_empty(shape) if self.has_d_x else None

    def allocate(self) -> None:
        """Ask for the memory that others read, before anybody walks."""
        _ = self.d_x

    def step(self, piece: int) -> None:
        """Walk back through a piece."""
        self.walk.walk(piece)

    def pass_down(self, piece: int) -> None:
        """Find a piece's dx."""
        if self.d_x is not None:
            weight = self.seen.kept.matrix("slotted", self.extent.columns, self.extent.width)
            torch.mm(self.rows.of(self.flat, piece), weight, out=self.rows.of(self.d_x.flatten(0, 1), piece))

    def weigh(self, piece: int) -> None:
        """Add a piece's share of dW."""
        self.products.add(*(self.rows.of(t, piece) for t in (self.flat, self.x, self.before)))

    @cached_property
    def flat(self) -> Tensor:
        """The gradients at all logits (T·B, H·S)."""
        return self.room.matrix("d_logits", self.extent.steps * self.extent.batch, self.extent.columns)

    @cached_property
    def x(self) -> Tensor:
        """What was read (T·B, D)."""
        shape = (self.extent.steps * self.extent.batch, self.extent.width)
        return self.seen.kept.matrix("by_time", *shape) if self.kept.x is None else self.kept.x

    @cached_property
    def before(self) -> Tensor:
        """The states that steps began with (T·B, H)."""
        return before_steps(self.kept.y, from_end=self.from_end).flatten(0, 1)

    @cached_property
    def products(self) -> WeightProducts:
        """Place for the gradients of the weights."""
        columns, width, units = self.extent.columns, self.extent.width, self.extent.units
        part = self.room.matrix if self.rows.pieces == 1 else self.room.floats
        ih = part("product_ih", columns, width) if self.wanted.w_ih else None
        hh = part("product_hh", columns, units) if self.wanted.w_hh else None
        return WeightProducts(ih, hh)

    def found(self) -> list[Tensor | None]:
        """All gradients, in the order of `CellInputs`, where they are wanted."""
        extent, wanted = self.extent, self.wanted
        d_bias = self.room.floats("d_sums", self.rows.pieces * extent.pairs, extent.columns)
        shape = (extent.width, extent.units)
        d_weights = weight_gradients(self.way.machine, self.way.plan, self.products, d_bias, shape, wanted)
        d_x = self.d_x.transpose(0, 1) if self.d_x is not None and wanted.x else None
        d_h = self.walk.d_first("d_hidden", wanted.h) if wanted.h else None
        return [d_x, d_h, self.walk.d_first("d_cell", wanted.c) if wanted.c else None, *d_weights]


def after_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Of all states (T + 1, B, H), those that each step has led to (T, B, H)."""
    return states[:-1] if from_end else states[1:]


def before_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Of all states (T + 1, B, H), those that each step has begun with (T, B, H)."""
    return states[1:] if from_end else states[:-1]


class ChunkRows(NamedTuple):
    """Where a piece lies among all rows of all steps (T·B)."""

    cuts: Cuts
    batch: int
    from_end: bool  # the first piece is the last in time

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self.cuts) - 1

    def span(self, piece: int) -> tuple[int, int]:
        """Where those of a piece begin, and how many they are."""
        start, end = self.cuts[piece : piece + 2]
        return (self.cuts[-1] - end if self.from_end else start) * self.batch, (end - start) * self.batch

    def of(self, t: Tensor, piece: int) -> Tensor:
        """Those of a piece; the tensor itself where that is all."""
        if self.pieces == 1:
            return t
        start, rows = self.span(piece)
        return t[start : start + rows]
