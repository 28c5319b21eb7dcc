"""One row times a large matrix, as recorded steps do it between calls of numpy.

numpy's own product has threads that are waited for: beside one busy program, on two cores, it takes three times as long
as by one thread. Ours (c_rows.py) are not. They need a compiler, once for a machine; without one numpy does it.
"""

from __future__ import annotations

from torch import Tensor

from recollect.accel.cpu.decode.library import functions, threads

LEAST = 1 << 13  # elements of a matrix: below, numpy uses one thread, and takes less time than a call of C
LARGE = 1 << 16  # elements of the largest matrix of a step for which a compiler is asked for


class RowProduct:
    """z (H,) = W (H, D) x (D,), all of which stay where they are."""

    def __init__(self, weight: Tensor, x: Tensor, z: Tensor) -> None:
        self._held = weight, x, z  # pointers into them are all that C has
        self._does = functions().multiply[weight.dtype]
        self._given = (*(t.data_ptr() for t in self._held), *weight.shape)

    def __call__(self) -> None:
        """Do it."""
        self._does(*self._given, threads())


def are_worth_it(weights: list[Tensor]) -> bool:
    """Whether a step's products are to be done here: hangs on their sizes, and on whether there is a compiler."""
    if max((t.numel() for t in weights), default=0) < LARGE:
        return False
    try:
        functions()
    except (OSError, ValueError):  # no compiler, no cache to write to
        return False
    return True


def row_product(out: Tensor, x: Tensor, y: Tensor) -> RowProduct | None:
    """Give x (1, D) y (D, H), where y is a weight (H, D) as it lies; None: it is numpy's."""
    is_plain = y.t().is_contiguous() and y.dtype in functions().multiply
    return RowProduct(y.t(), x[0], out[0]) if is_plain and y.numel() >= LEAST else None
