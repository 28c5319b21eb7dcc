"""From tensors to launches: what the kernels in `cuda/` are given, and what they give back."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from recollect.kernels.plans import Chip, Chore, Plan
from recollect.kernels.rooms import Extent, Room


class Machine(Protocol):
    """What can run a plan: a GPU, or an emulator of one."""

    chip: Chip
    told: ctypes.c_int  # which the host can read at any time; a kernel that gave up sets it

    def fits(self, plan: Plan, copies: int = 1) -> bool:
        """Whether the blocks of so many walks can all run at once."""
        ...

    def launch(self, plan: Plan, arguments: ctypes.Structure) -> None:
        """Run it, in the order of the current stream."""
        ...

    def do(self, chore: Chore, count: int, arguments: ctypes.Structure) -> None:
        """Run a chore of so many things, in the order of the current stream."""
        ...


class ForwardArguments(ctypes.Structure):
    """`Forward` of forward.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "bias", "weights", "hidden", "cell", "lengths")),
        *((name, ctypes.c_void_p) for name in ("outputs", "cells")),
        *((name, ctypes.c_void_p) for name in ("last_hidden", "last_cell", "exchange", "counters", "failed", "told")),
        *((name, ctypes.c_int) for name in ("steps", "by_step", "rows", "width", "groups", "keeps")),
    )


class BackwardArguments(ctypes.Structure):
    """`Backward` of backward.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("gates", "cells", "outputs", "weights", "lengths", "d_outputs")),
        *(
            (name, ctypes.c_void_p)
            for name in ("d_last_hidden", "d_last_cell", "d_logits", "d_hidden", "d_cell", "d_bias")
        ),
        *((name, ctypes.c_void_p) for name in ("exchange", "counters", "failed", "told")),
        *((name, ctypes.c_int64) for name in ("step_stride", "row_stride")),
        *((name, ctypes.c_int) for name in ("steps", "by_step", "rows", "width", "groups")),
    )


class Sizes(NamedTuple):
    """What every call asks of a plan."""

    exchange: int  # bytes before the counters
    counters: int  # bytes of the counters; a word for failure follows
    space: int  # bytes of all that, in whole lines
    parts: int  # of W_hh packed, 16 bytes each
    packing: dict[str, int]  # by the names of prepare.cu
    chores: dict[str, Chore]


@lru_cache(maxsize=4096)
def sizes(plan: Plan) -> Sizes:
    """Reckon it once."""
    exchange, counters = plan.exchange_bytes, 4 * plan.counters
    parts = plan.blocks * plan.wide * plan.deep * plan.weight_tiles * 128
    shape = {name: getattr(plan, name) for name in ("wide", "deep", "depth", "high", "cluster")}
    packing = {"parts": parts, **shape, "span": plan.cluster * plan.units}
    space = -(-(exchange + counters + 16) // 128) * 128
    return Sizes(exchange, counters, space, parts, packing, Chore.all_of(plan))


class Seen(NamedTuple):
    """What the walk forward leaves for the walk back."""

    kept: Room  # its gates, and c
    y: Tensor  # (T + 1, B, H), h_0 first, or last if the walk began at the end
    lengths: Tensor | None


class Forward:
    """A walk forward, in pieces of `size` steps: one launch each, or more where the batch asks for them.

    Gates replace the logits where it keeps them. A piece begins where the one before it ended: they run in order.
    `from_end`: the walk begins at the last step and ends at the first; so do its pieces.
    """

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        extent: Extent,
        rooms: tuple[Room, Room],
        lengths: Tensor | None,
        *,
        keeps: bool,
        size: int | None = None,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, (self.room, kept) = machine, plan, rooms
        steps, batch, units = extent.steps, extent.batch, extent.units
        self.pieces = cut(steps, size or steps)
        y = kept.memory.new_empty((steps + 1, batch, units))
        self.seen, self.lengths = Seen(kept, y, lengths), _left(lengths, self.pieces)
        weights = {"bias": self.room.at("bias"), "weights": self.room.at("packed"), "keeps": keeps}
        self._launches = [ForwardArguments(**weights, **shape) for shape in _shapes(plan, extent, from_end=from_end)]
        gates, state = extent.dtype.itemsize * extent.columns, extent.dtype.itemsize * units
        self._by_step = {
            "logits": Place.of_steps(kept.at("gates"), steps, batch, gates, from_end=from_end),
            "outputs": Place.of_steps(y.data_ptr(), steps + 1, batch, state, from_end=from_end),
            "cells": Place.of_steps(kept.at("cells"), steps + 1, batch, state, from_end=from_end),
        }
        hidden, cell = (Place(self.room.at(name), 4 * batch * units, 4 * units) for name in ("last_h", "last_c"))
        self._by_piece = {"last_hidden": hidden, "last_cell": cell, "lengths": _place_lengths(self.lengths, batch)}
        self._before = {"hidden": hidden, "cell": cell}  # by piece too
        self._first = {"hidden": Place(self.room.at("first_h"), 0, 4 * units)}
        self._first |= {"cell": Place(self.room.at("first_c"), 0, 4 * units)}
        self._exchange = Exchanges(machine, plan, self.room, len(self._launches))

    def walk(self, number: int) -> None:
        """Walk through a piece."""
        start, steps = self.pieces[number]
        for i, arguments in enumerate(self._launches):
            first = i * self.plan.batch
            arguments.steps = steps
            _point(arguments, self._by_step, start, first)
            _point(arguments, self._by_piece, number, first)
            _point(arguments, self._before if number else self._first, number - 1, first)
            self._exchange.give(arguments, number, i)
            self.machine.launch(self.plan, arguments)

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
        plan: Plan,
        extent: Extent,
        seen: Seen,
        room: Room,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        size: int | None = None,
        *,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, self.seen, self.room = machine, plan, seen, room
        steps, batch, units = extent.steps, extent.batch, extent.units
        self.pieces = cut(steps, size or steps)
        self.lengths = _left(seen.lengths, self.pieces)
        self.d_y = _readable(d_y, seen.y.dtype)
        self.d_last = [_readable(t, torch.float32, whole=True) for t in d_last]  # held while they are read
        by_step, by_row = (0, 0) if self.d_y is None else self.d_y.stride()[:2]
        strides = {"step_stride": -by_step if from_end else by_step, "row_stride": by_row}
        self._launches = [
            BackwardArguments(weights=room.at("packed"), **strides, **shape)
            for shape in _shapes(plan, extent, from_end=from_end)
        ]
        itemsize = extent.dtype.itemsize
        gates, state = itemsize * extent.columns, itemsize * units
        d_outputs = Place(_address(self.d_y), itemsize * by_step, itemsize * by_row)
        self._by_step = {
            "gates": Place.of_steps(seen.kept.at("gates"), steps, batch, gates, from_end=from_end),
            "cells": Place.of_steps(seen.kept.at("cells"), steps + 1, batch, state, from_end=from_end),
            "outputs": Place.of_steps(seen.y.data_ptr(), steps + 1, batch, state, from_end=from_end),
            "d_outputs": d_outputs.turned(steps) if from_end else d_outputs,
            "d_logits": Place.of_steps(room.at("d_logits"), steps, batch, gates, from_end=from_end),
        }
        hidden, cell = (Place(room.at(name), 4 * batch * units, 4 * units) for name in ("d_hidden", "d_cell"))
        sums = Place(room.at("d_sums"), 4 * extent.pairs * extent.columns, 4 * extent.columns, rows=2)
        lengths = _place_lengths(self.lengths, batch)
        self._by_piece = {"d_hidden": hidden, "d_cell": cell, "lengths": lengths, "d_bias": sums}
        self._after = {"d_last_hidden": hidden, "d_last_cell": cell}  # by piece too
        ends = (Place(_address(t), 0, 4 * units) for t in self.d_last)
        self._end = dict(zip(("d_last_hidden", "d_last_cell"), ends, strict=True))
        self._exchange = Exchanges(machine, plan, room, len(self._launches))

    def walk(self, number: int) -> None:
        """Walk back through a piece."""
        start, steps = self.pieces[number]
        is_last = number + 1 == len(self.pieces)
        for i, arguments in enumerate(self._launches):
            first = i * self.plan.batch
            arguments.steps = steps
            _point(arguments, self._by_step, start, first)
            _point(arguments, self._by_piece, number, first)
            _point(arguments, self._end if is_last else self._after, number + 1, first)
            self._exchange.give(arguments, number, i)
            self.machine.launch(self.plan, arguments)

    def d_first(self, name: str, dtype: torch.dtype) -> Tensor:
        """Copy the gradient at h_0 or c_0 (B, H): "d_hidden", "d_cell"."""
        _, batch, units = self.seen.y.shape
        return self.room.floats(name, batch, units).to(dtype, copy=True)


class Place(NamedTuple):
    """Where rows of a step or piece begin, in bytes; so many `rows` share one."""

    begin: int | None
    by_step: int
    by_row: int
    rows: int = 1

    @classmethod
    def of_steps(cls, begin: int | None, steps: int, batch: int, by_row: int, *, from_end: bool) -> Place:
        """Let rows lie beside each other, step after step, which may be counted from the end."""
        place = cls(begin, batch * by_row, by_row)
        return place.turned(steps) if from_end else place

    def turned(self, steps: int) -> Place:
        """Count steps from the end."""
        begin = None if self.begin is None else self.begin + (steps - 1) * self.by_step
        return self._replace(begin=begin, by_step=-self.by_step)

    def at(self, step: int, row: int) -> int | None:
        """The address of a row at a step."""
        return None if self.begin is None else self.begin + step * self.by_step + row // self.rows * self.by_row


def _place_lengths(lengths: Tensor | None, batch: int) -> Place:
    """Of the rows' lengths (pieces, B), in int32."""
    return Place(_address(lengths), 4 * batch, 4)


def _address(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _point(arguments: ctypes.Structure, places: dict[str, Place], step: int, row: int) -> None:
    for name, place in places.items():
        setattr(arguments, name, place.at(step, row))


class Exchanges:
    """The zeros through which the blocks of each launch exchange: every launch has its own."""

    def __init__(self, machine: Machine, plan: Plan, room: Room, launches: int) -> None:
        self.size, self.zeros, self.launches = sizes(plan), room.begin + room.starts["zeros"], launches
        self.told = ctypes.addressof(machine.told)

    def give(self, arguments: Any, piece: int, launch: int) -> None:
        """Point a launch to its own."""
        start = self.zeros + (piece * self.launches + launch) * self.size.space
        arguments.exchange, arguments.counters = start, start + self.size.exchange
        arguments.failed, arguments.told = start + self.size.exchange + self.size.counters, self.told


def _shapes(plan: Plan, extent: Extent, *, from_end: bool) -> list[dict[str, int]]:
    """Give what each launch that a batch asks for has of it."""
    batch = extent.batch
    common = {"by_step": -batch if from_end else batch, "width": extent.units, "groups": plan.groups}
    return [common | {"rows": min(plan.batch, batch - first)} for first in range(0, batch, plan.batch)]


def cut(steps: int, size: int) -> list[tuple[int, int]]:
    """Cut time into pieces: where each begins, and its steps."""
    return [(start, min(size, steps - start)) for start in range(0, steps, size)]


def launches_of(plan: Plan, batch: int) -> int:
    """How many launches read the whole batch."""
    return -(-batch // plan.batch)


def _left(lengths: Tensor | None, pieces: list[tuple[int, int]]) -> Tensor | None:
    """What is left of the rows' lengths where each piece begins (pieces, B): negative where a row has ended before."""
    if lengths is None:
        return None
    if len(pieces) == 1:
        return lengths[None]
    starts = torch.arange(len(pieces), device=lengths.device, dtype=lengths.dtype) * pieces[0][1]
    return lengths - starts[:, None]


def _readable(t: Tensor | None, dtype: torch.dtype, *, whole: bool = False) -> Tensor | None:
    """Give the gradient in the dtype that the kernel reads, a row's units beside each other."""
    if t is None:
        return None
    t = t.to(dtype)
    return t.contiguous() if whole or t.stride(-1) != 1 else t
