"""From tensors to launches: what the kernels in `cuda/` are given, and what they give back."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from recollect.kernels.packing import pack_backward, pack_forward
from recollect.kernels.plans import Chip, Plan


class Machine(Protocol):
    """What can run a plan: a GPU, or an emulator of one."""

    chip: Chip
    told: Tensor  # (1,) int32, which the host can read at any time; a kernel that gave up sets it

    def fits(self, plan: Plan) -> bool:
        """Whether the plan's blocks can all run at once."""
        ...

    def launch(self, plan: Plan, arguments: ctypes.Structure) -> None:
        """Run it, in the order of the current stream."""
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


@dataclass(frozen=True)
class Seen:
    """What the walk forward leaves for the walk back."""

    gates: Tensor  # (T, B, H, S)
    cells: Tensor | None  # (T + 1, B, H), c_0 first
    y: Tensor  # (T + 1, B, H), h_0 first
    weight_hh: Tensor
    lengths: Tensor | None


def run_forward(
    machine: Machine,
    plan: Plan,
    logits: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor,
    hidden: Tensor,
    cell_state: Tensor | None,
    lengths: Tensor | None,
    *,
    keeps: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Walk forward: y (T + 1, B, H) with h_0 first, every c where kept, the last h and c. Gates replace logits."""
    steps, batch, width, _ = logits.shape
    y = logits.new_empty(steps + 1, batch, width)
    cells = torch.empty_like(y) if cell_state is not None and keeps else None
    last_hidden = logits.new_empty(batch, width, dtype=torch.float32)
    last_cell = None if cell_state is None else torch.empty_like(last_hidden)
    weights = pack_forward(weight_hh.detach().to(logits.dtype), plan)
    for first in range(0, batch, plan.batch):
        space = Workspace(plan, logits.device)
        arguments = ForwardArguments(
            **_by_step(first, logits=logits, outputs=y, cells=cells),
            **_by_row(first, hidden=hidden, cell=cell_state, last_hidden=last_hidden, last_cell=last_cell),
            **_by_row(first, lengths=lengths),
            **space.addresses(machine),
            weights=weights.data_ptr(),
            bias=None if bias is None else bias.data_ptr(),
            keeps=keeps,
            **_shape(plan, logits, first),
        )
        machine.launch(plan, arguments)
    return y, cells, last_hidden, last_cell


def run_backward(
    machine: Machine,
    plan: Plan,
    seen: Seen,
    d_y: Tensor | None,
    d_last_hidden: Tensor | None,
    d_last_cell: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Walk back: the gradients at all logits (T, B, H, S), at h_0 and c_0 (B, H), and at the bias (H, S)."""
    d_logits = torch.empty_like(seen.gates)
    d_hidden = seen.y.new_empty(seen.y.shape[1:], dtype=torch.float32)
    d_cell = None if seen.cells is None else torch.empty_like(d_hidden)
    _, batch, width, slots = seen.gates.shape
    d_bias = d_hidden.new_empty((batch + 1) // 2, width, slots)  # each pair of rows sums its own: always the same order
    d_y = _readable(d_y, seen.y.dtype)
    d_last_hidden, d_last_cell = (_readable(t, torch.float32, whole=True) for t in (d_last_hidden, d_last_cell))
    weights = pack_backward(seen.weight_hh.to(seen.y.dtype), plan)
    for first in range(0, batch, plan.batch):
        space = Workspace(plan, seen.y.device)
        arguments = BackwardArguments(
            **_by_step(first, gates=seen.gates, cells=seen.cells, outputs=seen.y, d_outputs=d_y, d_logits=d_logits),
            **_by_row(first, lengths=seen.lengths, d_hidden=d_hidden, d_cell=d_cell),
            **_by_row(first, d_last_hidden=d_last_hidden, d_last_cell=d_last_cell),
            **_by_row(first // 2, d_bias=d_bias),
            **space.addresses(machine),
            weights=weights.data_ptr(),
            step_stride=0 if d_y is None else d_y.stride(0),
            row_stride=0 if d_y is None else d_y.stride(1),
            **_shape(plan, seen.gates, first),
        )
        machine.launch(plan, arguments)
    return d_logits, d_hidden, d_cell, d_bias.sum(0)


class Workspace:
    """Zeros that the blocks of one launch exchange through: slices of h or dgates, counters, and a word for failure."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan = plan
        self.room = torch.zeros(plan.exchange_bytes + 4 * plan.counters + 16, dtype=torch.uint8, device=device)

    def addresses(self, machine: Machine) -> dict[str, int]:
        """Where the parts lie."""
        exchange = self.room.data_ptr()
        counters = exchange + self.plan.exchange_bytes
        failed = counters + 4 * self.plan.counters
        return {"exchange": exchange, "counters": counters, "failed": failed, "told": machine.told.data_ptr()}


def _readable(t: Tensor | None, dtype: torch.dtype, *, whole: bool = False) -> Tensor | None:
    """Give the gradient in the dtype that the kernel reads, a row's units beside each other."""
    if t is None:
        return None
    t = t.to(dtype)
    return t.contiguous() if whole or t.stride(-1) != 1 else t


def _by_step(first: int, **tensors: Tensor | None) -> dict[str, int | None]:
    """Addresses of tensors (T, B, …), from a row on."""
    return {name: None if t is None else t[:, first:].data_ptr() for name, t in tensors.items()}


def _by_row(first: int, **tensors: Tensor | None) -> dict[str, int | None]:
    """Addresses of tensors (B, …), from a row on."""
    return {name: None if t is None else t[first:].data_ptr() for name, t in tensors.items()}


def _shape(plan: Plan, logits: Tensor, first: int) -> dict[str, int]:
    steps, batch, width, _ = logits.shape
    rows = min(plan.batch, batch - first)
    return {"steps": steps, "batch": batch, "rows": rows, "width": width, "groups": plan.groups}
