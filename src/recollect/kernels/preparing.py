"""What a walk finds ready: one launch of `cuda/prepare.cu` lays it all out, from tensors as torch has them.

Nothing is kept from call to call: weights change without notice, and fused optimisers do not even count it.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from recollect.kernels.launching import Machine, Ready, Sizes, launches_of, sizes
from recollect.kernels.packing import INPUT_SLOTS
from recollect.kernels.plans import Plan
from recollect.kernels.recurrences import Given

POINTERS = ("by_time", "slotted", "packed", "bias", "first_h", "first_c", "zeros")


class Source(ctypes.Structure):
    """`Source` of prepare.cu."""

    _fields_ = (("data", ctypes.c_void_p), ("is_float", ctypes.c_uint64))


class PrepareArguments(ctypes.Structure):
    """`Prepare` of prepare.cu."""

    _fields_ = (
        *((name, Source) for name in Given._fields),
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_uint64) for name in ("step_stride", "row_stride", "zero_count")),
        *((name, ctypes.c_int) for name in ("steps", "batch", "width", "units")),
        *((name, ctypes.c_int) for name in ("parts", "wide", "deep", "depth", "high", "laid", "cluster", "span")),
    )


def prepare_forward(
    machine: Machine, plan: Plan, given: Given, dtype: torch.dtype, pieces: int = 1
) -> tuple[Ready, Tensor, Tensor]:
    """Lay out what the walk forward reads; also x step by step (T·B, D) and W_ih slot by slot (H·S, D)."""
    given = Given(*(None if t is None else _readable(t, dtype) for t in given))  # type: ignore[arg-type]
    x, (batch, steps, width), units = given.x, given.x.shape, given.h.shape[1]
    by_time = x.new_empty((steps * batch, width), dtype=dtype)
    slotted = x.new_empty((units * len(INPUT_SLOTS[plan.cell]), width), dtype=dtype)
    size, states = sizes(plan), 4 * batch * units
    launches = pieces * launches_of(plan, batch)
    room, zeros, packed, rest = _make_room(size, x, launches, 2 * states + 4 * len(slotted))
    bias = None if given.b_ih is None else rest + 2 * states
    ready = Ready(room, zeros, packed, bias, rest, None if given.c is None else rest + states)
    arguments = PrepareArguments(
        *((0, 0) if t is None else (t.data_ptr(), t.dtype is torch.float32) for t in given),
        by_time=by_time.data_ptr(),
        slotted=slotted.data_ptr(),
        packed=packed,
        bias=bias,
        first_h=ready.hidden,
        first_c=ready.cell,
        zeros=zeros,
        zero_count=(packed - zeros) // 16,
        step_stride=x.stride(1),
        row_stride=x.stride(0),
        steps=steps,
        batch=batch,
        width=width,
        units=units,
        **size.packing,
    )
    things = max(size.parts, by_time.numel() // 8, slotted.numel() // 8)
    machine.do(size.chores["prepare"], things, arguments)
    return ready, by_time, slotted


def prepare_backward(
    machine: Machine, plan: Plan, w_hh: Tensor, batch: int, dtype: torch.dtype, pieces: int = 1
) -> Ready:
    """Lay out what the walk back reads."""
    w_hh, size = _readable(w_hh, dtype), sizes(plan)
    room, zeros, packed, _ = _make_room(size, w_hh, pieces * launches_of(plan, batch), 0)
    arguments = PrepareArguments(
        w_hh=(w_hh.data_ptr(), w_hh.dtype is torch.float32),
        packed=packed,
        zeros=zeros,
        zero_count=(packed - zeros) // 16,
        units=w_hh.shape[1],
        **size.packing,
    )
    machine.do(size.chores["prepare"], size.parts, arguments)
    return Ready(room, zeros, packed)


def _make_room(size: Sizes, like: Tensor, launches: int, more: int) -> tuple[Tensor, int, int, int]:
    """Give memory, and where in it lie zeros for every launch, packed weights, and what else is wanted."""
    zero_bytes, packed_bytes = launches * size.space, 16 * size.parts
    room = like.new_empty(zero_bytes + packed_bytes + more, dtype=torch.uint8)
    start = room.data_ptr()
    return room, start, start + zero_bytes, start + zero_bytes + packed_bytes


def _readable(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Give a tensor in a dtype that the kernel reads; x (B, T, D) may keep its strides along B and T."""
    if t.dtype is not dtype and t.dtype is not torch.float32:
        t = t.float()
    return t if t.dim() == 3 and t.stride(2) == 1 else t.contiguous()
