"""How exact the products of recurrences are: as exact as torch.nn's, or more so.

float32 may be multiplied in tf32, which keeps ten bits after the point. What torch.nn's recurrences go by is cuDNN's
allowance, which is there by default, for the products W_ih x of all steps as well as for the steps. So ours go by it
too. Of the steps cuDNN makes use of it where that pays, and ours read only such. Its other products are in tf32 too,
but for some small ones, most of them of rows that are not whole sixteens of bytes; there ours are exact.

bf16 and fp16 are summed in float32 within a product. But cuBLAS, which makes our large ones, may cut a sum and add the
parts up in the narrow dtype, where rows are not whole sixteens of bytes: errors of dx were a tenth larger than
torch.nn's at H 1500. It is not allowed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

CELLS = ("lstm", "gru")  # torch.nn's RNN is exact throughout
# Rows, units and what these are a multiple of, from where on cuDNN's steps were in tf32 on an H200
IN_TF32 = ((17, 200, 4), (17, 640, 1), (16, 512, 4))
WHOLE = 4  # numbers of sixteen bytes; what is no multiple of it is called odd here
# W_ih x was in tf32 at all sizes that were asked for, from so many inputs on, or so many units if none are odd; and
# dW_hh of odd units from so many rows of all steps on. Of odd inputs 150 and 650 were asked for, none between.
MANY_INPUTS, MANY_ODD_INPUTS, MANY_UNITS, MANY_ROWS = 100, 200, 512, 2048


def is_as_right(cell: str, batch: int, hidden: int) -> bool:
    """Whether torch.nn's own products of such states are in tf32: few rows, few units and its RNN it reads exactly."""
    found = (batch >= rows and hidden >= units and hidden % whole == 0 for rows, units, whole in IN_TF32)
    return cell in CELLS and any(found)


def is_exact_with_x(dtype: torch.dtype, width: int, units: int) -> bool:
    """Whether products with x are exact: some W_ih x of torch.nn are where few inputs go to few units, or any are odd.

    x and W_ih are then laid out whole, so that dx and dW_ih must be exact too: tensor cores would cut them off.
    """
    are_few = width < (MANY_ODD_INPUTS if width % WHOLE else MANY_INPUTS)
    are_many = units >= MANY_UNITS and width % WHOLE == units % WHOLE == 0
    return dtype is torch.float32 and are_few and not are_many


def is_sum_exact(dtype: torch.dtype, rows: int, units: int) -> bool:
    """Whether dW_hh is exact: some of torch.nn's are where few rows are summed for odd units."""
    return dtype is torch.float32 and rows < MANY_ROWS and units % WHOLE > 0


def is_tf32_allowed() -> bool:
    """Whether torch.nn's recurrences may make their products in tf32."""
    cudnn: Any = torch.backends.cudnn
    if hasattr(cudnn, "rnn"):  # torch 2.9 has a switch for recurrences alone
        return bool(cudnn.enabled and cudnn.rnn.fp32_precision == "tf32")
    return bool(cudnn.enabled and cudnn.allow_tf32)


_BY_NAME = hasattr(torch.backends.cuda.matmul, "fp32_precision")
EXACT: tuple[str, Any] = ("fp32_precision", "ieee") if _BY_NAME else ("allow_tf32", False)
WANTED: dict[torch.dtype, tuple[str, Any]] = {  # of cuBLAS, by the dtype of products
    torch.float32: ("fp32_precision", "tf32") if _BY_NAME else ("allow_tf32", True),
    torch.bfloat16: ("allow_bf16_reduced_precision_reduction", False),
    torch.float16: ("allow_fp16_reduced_precision_reduction", False),
}


def of_products(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Let large products be made as is said above, while they are asked for."""
    return _lend(*WANTED[dtype])


def of_one(*, exact: bool) -> AbstractContextManager[None]:
    """Let a product be exact, or as the others are."""
    return _lend(*EXACT) if exact else nullcontext()


@contextmanager
def _lend(name: str, wanted: Any) -> Iterator[None]:
    """Set what cuBLAS is allowed for a while.

    It is one for all threads: whoever multiplies in another thread in that moment is allowed the same.
    """
    matmul: Any = torch.backends.cuda.matmul
    before = getattr(matmul, name)
    if before == wanted:
        yield
        return
    setattr(matmul, name, wanted)
    try:
        yield
    finally:
        setattr(matmul, name, before)
