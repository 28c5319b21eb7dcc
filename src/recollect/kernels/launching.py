"""From tensors to launches: what the kernels in `cuda/` are given, and what they give back."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple, Protocol

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
        *((name, ctypes.c_int) for name in ("steps", "batch", "rows", "width", "groups", "keeps")),
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
        *((name, ctypes.c_uint64) for name in ("step_stride", "row_stride")),
        *((name, ctypes.c_int) for name in ("steps", "batch", "rows", "width", "groups")),
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
    cells: Tensor | None  # (T + 1, B, H), c_0 first
    y: Tensor  # (T + 1, B, H), h_0 first
    lengths: Tensor | None


class Forward:
    """A walk forward, in pieces of `size` steps: one launch each, or more where the batch asks for them.

    Gates replace the logits where it keeps them. A piece begins where the one before it ended: they run in order.
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
    ) -> None:
        self.machine, self.plan, self.ready, self.keeps = machine, plan, ready, keeps
        steps, batch, width, _ = logits.shape
        self.pieces = cut(steps, size or steps)
        y = logits.new_empty((steps + 1, batch, width))
        cells = torch.empty_like(y) if ready.cell is not None and keeps else None
        self.seen, self.lengths = Seen(logits, cells, y, lengths), _left(lengths, self.pieces)
        self.hidden = logits.new_empty((len(self.pieces), batch, width), dtype=torch.float32)  # after each piece
        self.cell = None if ready.cell is None else torch.empty_like(self.hidden)

    def walk(self, number: int) -> None:
        """Walk through a piece."""
        (logits, cells, y, _), (start, steps) = self.seen, self.pieces[number]
        _, batch, width, _ = logits.shape
        for first in range(0, batch, self.plan.batch):
            hidden, cell = (_further(t, 4 * first * width) for t in (self.ready.hidden, self.ready.cell))
            if number:
                hidden, cell = (_at(t, first, number - 1) for t in (self.hidden, self.cell))
            arguments = ForwardArguments(
                logits=_at(logits, first, start),
                bias=self.ready.bias,
                weights=self.ready.weights,
                hidden=hidden,
                cell=cell,
                lengths=_at(self.lengths, first, number),
                outputs=_at(y, first, start),
                cells=_at(cells, first, start),
                last_hidden=_at(self.hidden, first, number),
                last_cell=_at(self.cell, first, number),
                keeps=self.keeps,
                **_exchange(self.machine, self.plan, self.ready, launch_number(self.plan, batch, number, first)),
                **_shape(self.plan, steps, batch, width, first),
            )
            self.machine.launch(self.plan, arguments)

    @property
    def last(self) -> tuple[Tensor, Tensor | None]:
        """The last h and c."""
        return self.hidden[-1], None if self.cell is None else self.cell[-1]


class Backward:
    """A walk back, in pieces: what flows out of the beginning of one flows into the end of the one before it.

    Gives the gradients at all logits (T, B, H, S), at h_0 and c_0 (B, H), and at the bias (pieces x pairs, H, S): each
    pair of rows sums its own, over the steps of a piece, always in the same order.
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
    ) -> None:
        self.machine, self.plan, self.seen, self.ready = machine, plan, seen, ready
        steps, batch, width, slots = seen.gates.shape
        self.pieces = cut(steps, size or steps)
        self.lengths = _left(seen.lengths, self.pieces)
        self.d_logits = torch.empty_like(seen.gates)
        self.d_hidden = seen.y.new_empty((len(self.pieces), batch, width), dtype=torch.float32)  # before each piece
        self.d_cell = None if seen.cells is None else torch.empty_like(self.d_hidden)
        self.d_sums = self.d_hidden.new_empty((len(self.pieces), (batch + 1) // 2, width, slots))
        self.d_y = _readable(d_y, seen.y.dtype)
        self.d_last = tuple(_readable(t, torch.float32, whole=True) for t in d_last)

    def walk(self, number: int) -> None:
        """Walk back through a piece."""
        (gates, cells, y, _), (start, steps), d_y = self.seen, self.pieces[number], self.d_y
        _, batch, width, _ = gates.shape
        is_last = number + 1 == len(self.pieces)
        for first in range(0, batch, self.plan.batch):
            after = (_at(t, first, number + 1) for t in (self.d_hidden, self.d_cell))
            d_hidden, d_cell = (_at(t, first) for t in self.d_last) if is_last else after
            arguments = BackwardArguments(
                gates=_at(gates, first, start),
                cells=_at(cells, first, start),
                outputs=_at(y, first, start),
                weights=self.ready.weights,
                lengths=_at(self.lengths, first, number),
                d_outputs=_at(d_y, first, start),
                d_last_hidden=d_hidden,
                d_last_cell=d_cell,
                d_logits=_at(self.d_logits, first, start),
                d_hidden=_at(self.d_hidden, first, number),
                d_cell=_at(self.d_cell, first, number),
                d_bias=_at(self.d_sums, first // 2, number),
                step_stride=0 if d_y is None else d_y.stride(0),
                row_stride=0 if d_y is None else d_y.stride(1),
                **_exchange(self.machine, self.plan, self.ready, launch_number(self.plan, batch, number, first)),
                **_shape(self.plan, steps, batch, width, first),
            )
            self.machine.launch(self.plan, arguments)

    @property
    def d_first(self) -> tuple[Tensor, Tensor | None]:
        """The gradients at h_0 and c_0."""
        return self.d_hidden[0], None if self.d_cell is None else self.d_cell[0]

    @property
    def d_bias(self) -> Tensor:
        """What each pair of rows summed in each piece."""
        return self.d_sums.flatten(0, 1)


def cut(steps: int, size: int) -> list[tuple[int, int]]:
    """Cut time into pieces: where each begins, and its steps."""
    return [(start, min(size, steps - start)) for start in range(0, steps, size)]


def launches_of(plan: Plan, batch: int) -> int:
    """How many launches read the whole batch."""
    return -(-batch // plan.batch)


def launch_number(plan: Plan, batch: int, piece: int, first: int) -> int:
    """Count the launches of a walk: each has zeros of its own."""
    return piece * launches_of(plan, batch) + first // plan.batch


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


def _at(t: Tensor | None, first: int, earlier: int | None = None) -> int | None:
    """Give where a launch's rows begin, on the axis before which `earlier` counts steps or pieces."""
    if t is None:
        return None
    offset = first * t.stride(0) if earlier is None else earlier * t.stride(0) + first * t.stride(1)
    return t.data_ptr() + offset * t.element_size()


def _further(address: int | None, by: int) -> int | None:
    return None if address is None else address + by


def _exchange(machine: Machine, plan: Plan, ready: Ready, launch: int) -> dict[str, int]:
    size = sizes(plan)
    start = ready.zeros + launch * size.space
    counters = start + size.exchange
    told = ctypes.addressof(machine.told)
    return {"exchange": start, "counters": counters, "failed": counters + size.counters, "told": told}


def _shape(plan: Plan, steps: int, batch: int, width: int, first: int) -> dict[str, int]:
    rows = min(plan.batch, batch - first)
    return {"steps": steps, "batch": batch, "rows": rows, "width": width, "groups": plan.groups}
