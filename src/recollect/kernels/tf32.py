"""tf32 in recurrences: float32 whose products keep ten bits after the point, where torch allows that.

What torch.nn's recurrences go by is cuDNN's allowance, which is there by default, for the products W_ih x of all steps
as well as for the steps. So ours go by it too. cuBLAS, which makes our large products, has an allowance of its own; it
is lent cuDNN's while they are asked for. It is one for all threads: whoever multiplies float32 in another thread in
that moment multiplies in tf32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

FEWEST_ROWS, FEWEST_UNITS = 16, {"lstm": 160, "gru": 160}


def is_as_right(cell: str, batch: int, hidden: int) -> bool:
    """Whether torch.nn's own products of such states are in tf32: few rows, few units and its RNN it reads exactly."""
    return batch >= FEWEST_ROWS and cell in FEWEST_UNITS and hidden >= FEWEST_UNITS[cell]


def is_allowed() -> bool:
    """Whether torch.nn's recurrences may make their products in tf32."""
    cudnn: Any = torch.backends.cudnn
    if hasattr(cudnn, "rnn"):  # torch 2.9 has a switch for recurrences alone
        return bool(cudnn.enabled and cudnn.rnn.fp32_precision == "tf32")
    return bool(cudnn.enabled and cudnn.allow_tf32)


@contextmanager
def lent(dtype: torch.dtype) -> Iterator[None]:
    """Let large products of float32 be made in tf32; other dtypes are left alone."""
    matmul: Any = torch.backends.cuda.matmul
    name, wanted = ("fp32_precision", "tf32") if hasattr(matmul, "fp32_precision") else ("allow_tf32", True)
    before = getattr(matmul, name)
    if dtype is not torch.float32 or before == wanted:
        yield
        return
    setattr(matmul, name, wanted)
    try:
        yield
    finally:
        setattr(matmul, name, before)
