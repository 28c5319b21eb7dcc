"""What follows the walk back: large products, and one launch of `cuda/finish.cu` that gives them torch's order."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from recollect.kernels.launching import Machine, sizes
from recollect.kernels.packing import SENT_GATES
from recollect.kernels.plans import Plan
from recollect.kernels.preparing import Source


class FinishArguments(ctypes.Structure):
    """`Finish` of finish.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("product_ih", "product_hh", "sums")),
        *((name, Source) for name in ("w_ih", "w_hh", "b_ih", "b_hh")),
        *((name, ctypes.c_int) for name in ("pairs", "width", "units")),
    )


def weight_gradients(
    machine: Machine, plan: Plan, flat: Tensor, x: Tensor, before: Tensor, d_bias: Tensor, dtypes: Any
) -> tuple[Tensor | None, ...]:
    """Give dW_ih = Σ dlogits' x, dW_hh = Σ dlogits' h_{t-1}, db_ih and db_hh, each where it has a dtype.

    `flat` (T·B, H·S) are the dlogits, `x` (T·B, D), `before` (T·B, H), and `d_bias` (pairs, H, S) sums over the steps.
    """
    width, units, across = x.shape[1], before.shape[1], flat.t()
    rows = units * len(SENT_GATES[plan.cell])
    shapes = ((rows, width), (rows, units), (rows,), (rows,))
    product_ih = across @ x if dtypes.w_ih else None  # (H·S, D)
    product_hh = across @ before if dtypes.w_hh else None  # (H·S, H)
    made = [
        None if dtype is None else flat.new_empty(shape, dtype=dtype if dtype is flat.dtype else torch.float32)
        for shape, dtype in zip(shapes, dtypes[3:], strict=True)
    ]
    arguments = FinishArguments(
        *(None if t is None else t.data_ptr() for t in (product_ih, product_hh, d_bias)),
        *((0, 0) if t is None else (t.data_ptr(), t.dtype is torch.float32) for t in made),
        *(len(d_bias), width, units),
    )
    machine.do(sizes(plan).chores["finish"], rows * max(width, units) // 8, arguments)
    return tuple(made)
