"""What follows the backward loop: large matmuls, and one launch of `cuda/finish.cu` that restores torch's order."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from recollect.accel.cuda.recurrent.execution import Machine
from recollect.accel.cuda.recurrent.inputs import TensorPointer
from recollect.accel.cuda.recurrent.launches import sizes
from recollect.accel.cuda.recurrent.packed_weights import SENT_GATES
from recollect.accel.cuda.recurrent.plan import KernelPlan


class FinishArguments(ctypes.Structure):
    """`Finish` of finish.cu, field by field."""

    _fields_ = (
        *((name, TensorPointer) for name in ("product_ih", "product_hh")),
        ("sums", ctypes.c_void_p),
        *((name, TensorPointer) for name in ("w_ih", "w_hh", "b_ih", "b_hh")),
        *((name, ctypes.c_int) for name in ("pairs", "width", "units")),
    )


class WeightProducts:
    """dW_ih = Σ dlogits' x and dW_hh = Σ dlogits' h_{t-1}, slot by slot, of all steps at once or chunk by chunk.

    Chunks are accumulated in float32, so that cutting time loses no precision.
    """

    def __init__(self, ih: Tensor | None, hh: Tensor | None) -> None:
        self.ih, self.hh = ih, hh  # where they are written, (H·S, D) and (H·S, H)
        self._is_empty = True

    def add(self, flat: Tensor, x: Tensor, before: Tensor) -> None:
        """Add those of some steps: dlogits (n, H·S), x (n, D) and h_{t-1} (n, H)."""
        for total, right in ((self.ih, x), (self.hh, before)):
            if total is not None:
                _add_product(total, flat.t(), right, is_first=self._is_empty)
        self._is_empty = False


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, is_first: bool) -> None:
    """Compute total = left right, or total += left right; the total may have a higher precision than the factors."""
    if total.dtype is left.dtype and is_first:
        torch.mm(left, right, out=total)
    elif total.dtype is left.dtype:
        total.addmm_(left, right)
    elif total.device.type != "cuda":  # mm with an output dtype is for CUDA alone
        total.addmm_(left.float(), right.float(), beta=int(not is_first))
    elif is_first:
        torch.mm(left, right, torch.float32, out=total)
    elif _adds_to_float32(left.device, left.dtype):
        torch.addmm(total, left, right, torch.float32, out=total)
    else:
        total += torch.mm(left, right, torch.float32)


@lru_cache
def _adds_to_float32(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether addmm has a float32 total for reduced-precision factors: not every torch whose mm has it does."""
    narrow, wide = (torch.zeros(8, 8, device=device, dtype=d) for d in (dtype, torch.float32))
    try:
        torch.addmm(wide, narrow, narrow, torch.float32, out=wide)
    except RuntimeError:
        return False
    return True


def weight_gradients(
    machine: Machine, plan: KernelPlan, products: WeightProducts, d_bias: Tensor, shape: tuple[int, int], dtypes: Any
) -> tuple[Tensor | None, ...]:
    """Return dW_ih, dW_hh, db_ih and db_hh in torch's order, None where its dtype is None.

    `d_bias` (pairs, H·S) has sums over the steps; `shape` is (D, H).
    """
    width, units = shape
    rows, narrow = units * len(SENT_GATES[plan.cell]), plan.dtype
    shapes = ((rows, width), (rows, units), (rows,), (rows,))
    made = [
        None if dtype is None else d_bias.new_empty(shape, dtype=dtype if dtype is narrow else torch.float32)
        for shape, dtype in zip(shapes, dtypes[3:], strict=True)
    ]
    arguments = FinishArguments(
        *(_source(t) for t in (products.ih, products.hh)), d_bias.data_ptr(), *map(_source, made), len(d_bias), *shape
    )
    machine.do(sizes(plan).chores["finish"], rows * max(width, units) // 8, arguments)
    return tuple(made)


def _source(t: Tensor | None) -> tuple[int, bool]:
    return (0, False) if t is None else (t.data_ptr(), t.dtype is torch.float32)
