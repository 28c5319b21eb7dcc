"""From tensors to launches: what the kernels in `cuda/` are given, and what they give back."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from recollect.kernels.plans import Chip, Chore, Plan


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
    shape = {name: getattr(plan, name) for name in ("wide", "deep", "depth", "high", "laid", "cluster")}
    packing = {"parts": parts, **shape, "span": plan.cluster * plan.units}
    space = -(-(exchange + counters + 16) // 128) * 128
    return Sizes(exchange, counters, space, parts, packing, Chore.all_of(plan))


class Ready(NamedTuple):
    """What was laid out for a walk, by address."""

    room: Tensor  # where it all lies: held while it is read
    zeros: int  # that the blocks of each launch exchange through: slices of h or dgates, counters, a word for failure
    weights: int
    bias: int | None = None
    hidden: int | None = None
    cell: int | None = None


class Seen(NamedTuple):
    """What the walk forward leaves for the walk back."""

    gates: Tensor  # (T, B, H, S)
    cells: Tensor | None  # (T + 1, B, H), c_0 first, or last if the walk began at the end
    y: Tensor  # (T + 1, B, H), h_0 likewise
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
        logits: Tensor,
        ready: Ready,
        lengths: Tensor | None,
        *,
        keeps: bool,
        size: int | None = None,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, self.ready = machine, plan, ready
        steps, batch, width, _ = logits.shape
        self.pieces = cut(steps, size or steps)
        y = logits.new_empty((steps + 1, batch, width))
        cells = torch.empty_like(y) if ready.cell is not None and keeps else None
        self.seen, self.lengths = Seen(logits, cells, y, lengths), _left(lengths, self.pieces)
        self.hidden = logits.new_empty((len(self.pieces), batch, width), dtype=torch.float32)  # after each piece
        self.cell = None if ready.cell is None else torch.empty_like(self.hidden)
        self._launches = [
            ForwardArguments(bias=ready.bias, weights=ready.weights, keeps=keeps, **shape)
            for shape in _shapes(plan, batch, width, from_end=from_end)
        ]
        steps_of = {"logits": logits, "outputs": y, "cells": cells}
        self._by_step = {name: Place(t, from_end=from_end) for name, t in steps_of.items()}
        last = {"last_hidden": Place(self.hidden), "last_cell": Place(self.cell)}
        self._by_piece = last | {"lengths": Place(self.lengths)}
        self._before = {"hidden": Place(self.hidden), "cell": Place(self.cell)}  # by piece too
        self._exchange = Exchanges(machine, plan, ready, len(self._launches))

    def walk(self, number: int) -> None:
        """Walk through a piece."""
        start, steps = self.pieces[number]
        for i, arguments in enumerate(self._launches):
            first = i * self.plan.batch
            arguments.steps = steps
            _point(arguments, self._by_step, start, first)
            _point(arguments, self._by_piece, number, first)
            if number:
                _point(arguments, self._before, number - 1, first)
            else:
                offset = 4 * first * arguments.width
                arguments.hidden, arguments.cell = (_further(t, offset) for t in (self.ready.hidden, self.ready.cell))
            self._exchange.give(arguments, number, i)
            self.machine.launch(self.plan, arguments)

    @property
    def last(self) -> tuple[Tensor, Tensor | None]:
        """The last h and c."""
        return self.hidden[-1], None if self.cell is None else self.cell[-1]


class Backward:
    """A walk back, in pieces: what flows out of the beginning of one flows into the end of the one before it.

    Gives the gradients at all logits (T, B, H, S), at h_0 and c_0 (B, H), and at the bias (pieces x pairs, H, S): each
    pair of rows sums its own, over the steps of a piece, always in the same order.
    `from_end`: the walk forward began there, so that this one ends there.
    """

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        seen: Seen,
        ready: Ready,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        size: int | None = None,
        *,
        from_end: bool = False,
    ) -> None:
        self.machine, self.plan, self.seen, self.ready = machine, plan, seen, ready
        steps, batch, width, slots = seen.gates.shape
        self.pieces = cut(steps, size or steps)
        self.lengths = _left(seen.lengths, self.pieces)
        self.d_logits = torch.empty_like(seen.gates)
        self.d_hidden = seen.y.new_empty((len(self.pieces), batch, width), dtype=torch.float32)  # before each piece
        self.d_cell = None if seen.cells is None else torch.empty_like(self.d_hidden)
        self.d_sums = self.d_hidden.new_empty((len(self.pieces), (batch + 1) // 2, width, slots))
        self.d_y, (d_h, d_c) = _readable(d_y, seen.y.dtype), (_readable(t, torch.float32, whole=True) for t in d_last)
        self.d_last = d_h, d_c  # held while they are read
        by_step, by_row = (0, 0) if self.d_y is None else self.d_y.stride()[:2]
        strides = {"step_stride": -by_step if from_end else by_step, "row_stride": by_row}
        self._launches = [
            BackwardArguments(weights=ready.weights, **strides, **shape)
            for shape in _shapes(plan, batch, width, from_end=from_end)
        ]
        steps_of = {"gates": seen.gates, "cells": seen.cells, "outputs": seen.y, "d_outputs": self.d_y}
        steps_of |= {"d_logits": self.d_logits}
        self._by_step = {name: Place(t, from_end=from_end) for name, t in steps_of.items()}
        first = {"d_hidden": Place(self.d_hidden), "d_cell": Place(self.d_cell)}
        self._by_piece = first | {"lengths": Place(self.lengths), "d_bias": Place(self.d_sums, rows=2)}
        self._after = {"d_last_hidden": Place(self.d_hidden), "d_last_cell": Place(self.d_cell)}  # by piece too
        self._end = {"d_last_hidden": Place(d_h, 0), "d_last_cell": Place(d_c, 0)}
        self._exchange = Exchanges(machine, plan, ready, len(self._launches))

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

    @property
    def d_first(self) -> tuple[Tensor, Tensor | None]:
        """The gradients at h_0 and c_0."""
        return self.d_hidden[0], None if self.d_cell is None else self.d_cell[0]

    @property
    def d_bias(self) -> Tensor:
        """What each pair of rows summed in each piece."""
        return self.d_sums.flatten(0, 1)


class Place:
    """Where a tensor's rows of a step or piece begin; asked once, since asking a tensor takes its time.

    `axis` is that of the rows, after that of steps or pieces if there is one; so many `rows` share one of it. Steps may
    be counted from the end.
    """

    def __init__(self, t: Tensor | None, axis: int = 1, rows: int = 1, *, from_end: bool = False) -> None:
        self.begin, self.rows = None if t is None else t.data_ptr(), rows
        self.by_step = t.stride(0) * t.element_size() if t is not None and axis else 0
        self.by_row = t.stride(axis) * t.element_size() if t is not None else 0
        if t is not None and self.begin is not None and from_end:
            self.begin, self.by_step = self.begin + (len(t) - 1) * self.by_step, -self.by_step

    def at(self, step: int, row: int) -> int | None:
        """The address of a row at a step."""
        return None if self.begin is None else self.begin + step * self.by_step + row // self.rows * self.by_row


def _point(arguments: ctypes.Structure, places: dict[str, Place], step: int, row: int) -> None:
    for name, place in places.items():
        setattr(arguments, name, place.at(step, row))


class Exchanges:
    """The zeros through which the blocks of each launch exchange: every launch has its own."""

    def __init__(self, machine: Machine, plan: Plan, ready: Ready, launches: int) -> None:
        self.size, self.zeros, self.launches = sizes(plan), ready.zeros, launches
        self.told = ctypes.addressof(machine.told)

    def give(self, arguments: Any, piece: int, launch: int) -> None:
        """Point a launch to its own."""
        start = self.zeros + (piece * self.launches + launch) * self.size.space
        arguments.exchange, arguments.counters = start, start + self.size.exchange
        arguments.failed, arguments.told = start + self.size.exchange + self.size.counters, self.told


def _shapes(plan: Plan, batch: int, width: int, *, from_end: bool) -> list[dict[str, int]]:
    """Give what each launch that a batch asks for has of it."""
    common = {"by_step": -batch if from_end else batch, "width": width, "groups": plan.groups}
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


def _further(address: int | None, by: int) -> int | None:
    return None if address is None else address + by
