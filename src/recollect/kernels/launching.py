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

    def fits(self, plan: Plan) -> bool:
        """Whether the plan's blocks can all run at once."""
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


def run_forward(
    machine: Machine, plan: Plan, logits: Tensor, ready: Ready, lengths: Tensor | None, *, keeps: bool
) -> tuple[Seen, Tensor, Tensor | None]:
    """Walk forward: all that backward sees, the last h and c. Gates replace logits where it keeps them."""
    steps, batch, width, _ = logits.shape
    y = logits.new_empty((steps + 1, batch, width))
    cells = torch.empty_like(y) if ready.cell is not None and keeps else None
    last_hidden = logits.new_empty((batch, width), dtype=torch.float32)
    last_cell = None if ready.cell is None else torch.empty_like(last_hidden)
    for first in range(0, batch, plan.batch):
        states = 4 * first * width
        arguments = ForwardArguments(
            logits=_at(logits, 1, first),
            bias=ready.bias,
            weights=ready.weights,
            hidden=_further(ready.hidden, states),
            cell=_further(ready.cell, states),
            lengths=_at(lengths, 0, first),
            outputs=_at(y, 1, first),
            cells=_at(cells, 1, first),
            last_hidden=_at(last_hidden, 0, first),
            last_cell=_at(last_cell, 0, first),
            keeps=keeps,
            **_exchange(machine, plan, ready, first),
            **_shape(plan, logits, first),
        )
        machine.launch(plan, arguments)
    return Seen(logits, cells, y, lengths), last_hidden, last_cell


def run_backward(
    machine: Machine,
    plan: Plan,
    seen: Seen,
    ready: Ready,
    d_y: Tensor | None,
    d_last_hidden: Tensor | None,
    d_last_cell: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Walk back: the gradients at all logits (T, B, H, S), at h_0 and c_0 (B, H), and at the bias (pairs, H, S).

    Each pair of rows sums its own gradient of the bias, over the steps: always in the same order.
    """
    d_logits = torch.empty_like(seen.gates)
    _, batch, width, slots = seen.gates.shape
    d_hidden = seen.y.new_empty((batch, width), dtype=torch.float32)
    d_cell = None if seen.cells is None else torch.empty_like(d_hidden)
    d_bias = d_hidden.new_empty(((batch + 1) // 2, width, slots))
    d_y = _readable(d_y, seen.y.dtype)
    d_last_hidden, d_last_cell = (_readable(t, torch.float32, whole=True) for t in (d_last_hidden, d_last_cell))
    for first in range(0, batch, plan.batch):
        arguments = BackwardArguments(
            gates=_at(seen.gates, 1, first),
            cells=_at(seen.cells, 1, first),
            outputs=_at(seen.y, 1, first),
            weights=ready.weights,
            lengths=_at(seen.lengths, 0, first),
            d_outputs=_at(d_y, 1, first),
            d_last_hidden=_at(d_last_hidden, 0, first),
            d_last_cell=_at(d_last_cell, 0, first),
            d_logits=_at(d_logits, 1, first),
            d_hidden=_at(d_hidden, 0, first),
            d_cell=_at(d_cell, 0, first),
            d_bias=_at(d_bias, 0, first // 2),
            step_stride=0 if d_y is None else d_y.stride(0),
            row_stride=0 if d_y is None else d_y.stride(1),
            **_exchange(machine, plan, ready, first),
            **_shape(plan, seen.gates, first),
        )
        machine.launch(plan, arguments)
    return d_logits, d_hidden, d_cell, d_bias


def _readable(t: Tensor | None, dtype: torch.dtype, *, whole: bool = False) -> Tensor | None:
    """Give the gradient in the dtype that the kernel reads, a row's units beside each other."""
    if t is None:
        return None
    t = t.to(dtype)
    return t.contiguous() if whole or t.stride(-1) != 1 else t


def _at(t: Tensor | None, axis: int, first: int) -> int | None:
    """Give where a tensor's rows begin, from the first of a launch on; `axis` is that of the rows."""
    return None if t is None else t.data_ptr() + first * t.stride(axis) * t.element_size()


def _further(address: int | None, by: int) -> int | None:
    return None if address is None else address + by


def _exchange(machine: Machine, plan: Plan, ready: Ready, first: int) -> dict[str, int]:
    size = sizes(plan)
    start = ready.zeros + first // plan.batch * size.space
    counters = start + size.exchange
    told = ctypes.addressof(machine.told)
    return {"exchange": start, "counters": counters, "failed": counters + size.counters, "told": told}


def _shape(plan: Plan, logits: Tensor, first: int) -> dict[str, int]:
    steps, batch, width, _ = logits.shape
    rows = min(plan.batch, batch - first)
    return {"steps": steps, "batch": batch, "rows": rows, "width": width, "groups": plan.groups}
