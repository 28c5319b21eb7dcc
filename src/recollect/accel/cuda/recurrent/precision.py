"""The matmul precision of recurrences: that which torch.nn's are allowed.

float32 may be multiplied in tf32, which keeps ten bits of mantissa. torch.nn's recurrences go by cuDNN's allowance
(`torch.backends.cudnn.allow_tf32`, on by default), for W_ih x of all steps as well as for the steps; so do ours. Where
it is off, float32 is left to torch. With few inputs to few units cuDNN computes W_ih x in full precision at some sizes,
by no visible rule, where ours would be twice as wrong; all such sizes are left to torch.

bf16 and fp16 are summed in float32 within a product. But cuBLAS, which computes our large ones, may split a sum and add
the parts in the reduced precision, where rows are no multiples of sixteen bytes: errors of dx were a tenth larger than
torch.nn's at H 1500. It is not allowed to while ours are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

TF32_CELLS = ("lstm", "gru")  # cuDNN's RNN is in full precision throughout
FEWEST_ROWS = 16  # with fewer cuDNN's steps are in full precision, and ours were not measured to be faster
FEW_INPUTS, FEW_UNITS = 100, 512  # below both, W_ih x may be in full precision; at or above either it was in tf32


def may_use_tf32(cell: str, batch: int, inputs: int, hidden: int) -> bool:
    """Return whether float32 may be read in tf32: where torch.nn's recurrences are allowed to, and use it."""
    if cell not in TF32_CELLS or batch < FEWEST_ROWS or (inputs < FEW_INPUTS and hidden < FEW_UNITS):
        return False
    cudnn: Any = torch.backends.cudnn
    if hasattr(cudnn, "rnn"):  # torch 2.9 has a switch for recurrences alone
        return bool(cudnn.enabled and cudnn.rnn.fp32_precision == "tf32")
    return bool(cudnn.enabled and cudnn.allow_tf32)


_BY_NAME = hasattr(torch.backends.cuda.matmul, "fp32_precision")
WANTED: dict[torch.dtype, tuple[str, Any]] = {  # of cuBLAS, by the dtype of matrix products
    torch.float32: ("fp32_precision", "tf32") if _BY_NAME else ("allow_tf32", True),
    torch.bfloat16: ("allow_bf16_reduced_precision_reduction", False),
    torch.float16: ("allow_fp16_reduced_precision_reduction", False),
}


@contextmanager
def of_products(dtype: torch.dtype) -> Iterator[None]:
    """Set what cuBLAS is allowed as described above, and restore it afterwards.

    The setting is global: matmuls of other threads in the meantime run under it too.
    """
    matmul: Any = torch.backends.cuda.matmul
    name, wanted = WANTED[dtype]
    before = getattr(matmul, name)
    if before == wanted:
        yield
        return
    setattr(matmul, name, wanted)
    try:
        yield
    finally:
        setattr(matmul, name, before)
