"""How exact the products of recurrences are: as exact as torch.nn's, or more so.

float32 may be multiplied in tf32, which keeps ten bits after the point. What torch.nn's recurrences go by is cuDNN's
allowance, which is there by default, for the products W_ih x of all steps as well as for the steps. So ours go by it
too. Of the steps cuDNN makes use of it where that pays, and ours read only such. Of the products with x it does not
always where inputs are few, by sizes of all kinds; there ours are exact, which costs little.

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
# Rows, units and what these are a multiple of, from where on cuDNN's steps were in tf32 on an H200, and its products
# W_ih x no more exact than ours
IN_TF32 = ((17, 200, 4), (17, 640, 1), (16, 512, 4))
# Inputs, units and what these are a multiple of, from where on each its products with x were in tf32 at every size
ALWAYS_IN_TF32 = (100, 512, 4)


def is_as_right(cell: str, batch: int, hidden: int) -> bool:
    """Whether torch.nn's own products of such states are in tf32: few rows, few units and its RNN it reads exactly."""
    found = (batch >= rows and hidden >= units and hidden % whole == 0 for rows, units, whole in IN_TF32)
    return cell in CELLS and any(found)


def is_exact(dtype: torch.dtype, width: int, units: int) -> bool:
    """Whether products with x are exact: where few inputs go to few units, or odd ones, some of torch.nn's are."""
    inputs, many, whole = ALWAYS_IN_TF32
    return dtype is torch.float32 and width < inputs and (units < many or units % whole > 0)


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


def of_inputs(*, exact: bool) -> AbstractContextManager[None]:
    """Let products with x be exact, or as others are."""
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
