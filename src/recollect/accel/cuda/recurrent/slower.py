"""Where the library's own path is faster than our recurrent kernels, as measured.

Speed was measured on a grid of sizes; a shape between its points is judged by the nearest one, by ratio of sizes. The
grid is measured by `python benchmarks/recurrent.py`; with `--table` it prints what belongs here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

HIDDEN, BATCH = (64, 128, 200, 256, 512, 650, 1024, 1500), (1, 16, 64, 128)  # the grid


class Shape(NamedTuple):
    """A point of the grid, read with or without gradients."""

    cell: str
    dtype: torch.dtype
    batch: int
    hidden: int
    trains: bool


PLAIN_IS_FASTER: frozenset[Shape] = frozenset()


def plain_is_faster(cell: str, dtype: torch.dtype, batch: int, hidden: int, *, trains: bool) -> bool:
    """Whether the library was faster at the point of the grid that is nearest."""
    return Shape(cell, dtype, _nearest(batch, BATCH), _nearest(hidden, HIDDEN), trains) in PLAIN_IS_FASTER


@lru_cache(maxsize=4096)
def _nearest(size: int, points: tuple[int, ...]) -> int:
    return min(points, key=lambda point: abs(math.log(size / point)))
