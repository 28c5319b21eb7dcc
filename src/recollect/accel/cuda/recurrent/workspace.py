"""Workspace of a time loop: one allocation takes the host less time than one for each part.

Parts that are freed together lie in one workspace. What a caller keeps, outputs and the last states, has memory of its
own, so that holding a part never holds a whole workspace.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from recollect.accel.cuda.recurrent.packed_weights import INPUT_SLOTS

ALIGNED = 512  # bytes: as torch's own allocations lie


class Extent(NamedTuple):
    """The sizes of what a layer reads."""

    cell: str
    steps: int  # T
    batch: int  # B
    width: int  # D
    units: int  # H
    dtype: torch.dtype  # of matmul operands
    has_x: bool = True  # False: another layer holds x, time-major

    @property
    def columns(self) -> int:
        """Gates of all units, slot by slot: H·S."""
        return self.units * len(INPUT_SLOTS[self.cell])

    @property
    def has_cells(self) -> bool:
        """Whether there is a c."""
        return self.cell == "lstm"

    @property
    def pairs(self) -> int:
        """Pairs of rows, whose bias gradients backward sums together."""
        return -(-self.batch // 2)


Parts = dict[str, int]  # bytes by name


class Layout(NamedTuple):
    """Where each part begins, and where all end, in bytes."""

    starts: Parts
    size: int


def lay_out(parts: Parts) -> Layout:
    """Return parts one after the other; those of no bytes are left out."""
    starts, end = {}, 0
    for name, size in parts.items():
        if size:
            starts[name] = end
            end += -(-size // ALIGNED) * ALIGNED
    return Layout(starts, end)


class Workspace:
    """One allocation, and where each part lies in it."""

    def __init__(self, memory: Tensor, layout: Layout) -> None:
        self.memory, self.layout, self.starts = memory, layout, layout.starts
        begin = memory.data_ptr()
        self.addresses = {name: begin + start for name, start in layout.starts.items()}

    @classmethod
    def make(cls, like: Tensor, dtype: torch.dtype, layout: Layout) -> Workspace:
        """Allocate it on the device of a tensor."""
        return cls(like.new_empty(layout.size // dtype.itemsize, dtype=dtype), layout)

    def matrix(self, name: str, rows: int, columns: int, *, after: int = 0) -> Tensor:
        """Return rows of a part as a matrix, in the workspace's dtype, from row `after` on."""
        start = self.starts[name] // self.memory.itemsize + after * columns
        return self.memory.as_strided((rows, columns), (columns, 1), start)

    def crossed(self, name: str, rows: int, columns: int) -> Tensor:
        """Return the transpose of such a matrix: one view instead of two."""
        return self.memory.as_strided((columns, rows), (1, columns), self.starts[name] // self.memory.itemsize)

    def floats(self, name: str, rows: int, columns: int, *, after: int = 0) -> Tensor:
        """Return rows of a part in float32, from row `after` on."""
        return self._wide.as_strided((rows, columns), (columns, 1), self.starts[name] // 4 + after * columns)

    @cached_property
    def _wide(self) -> Tensor:
        return self.memory.view(torch.float32)


def forward_parts(extent: Extent, zeros: int, packed: int, chunks: int, *, has_bias: bool) -> Parts:
    """Return what forward needs while it runs; last_h and last_c after each chunk (chunks, B, H)."""
    state = 4 * extent.batch * extent.units
    parts = {"zeros": zeros, "packed": packed, "bias": 4 * extent.columns if has_bias else 0}
    parts |= {"first_h": state, "last_h": chunks * state}
    return parts | {"first_c": state, "last_c": chunks * state} if extent.has_cells else parts


def kept_parts(extent: Extent, *, keeps: bool) -> Parts:
    """Return what matmuls read, and backward again: for it also all c (T + 1, B, H), c_0 first or last."""
    rows, units, size = extent.steps * extent.batch, extent.units, extent.dtype.itemsize
    return {
        "slotted": size * extent.columns * extent.width,  # (H·S, D)
        "by_time": size * rows * extent.width if extent.has_x else 0,  # (T·B, D)
        "gates": size * rows * extent.columns,  # (T·B, H·S): logits before the time loop
        "cells": size * (rows + extent.batch) * units if keeps and extent.has_cells else 0,
    }


def backward_parts(extent: Extent, zeros: int, packed: int, chunks: int, *, wants_ih: bool, wants_hh: bool) -> Parts:
    """Return what backward needs and computes, but for what the caller receives.

    Gradients of the states before each chunk (chunks, B, H), sums over the steps of a chunk by pairs of rows, and the
    gradients of weights, slot by slot; those of several chunks are accumulated in float32.
    """
    columns, narrow = extent.columns, extent.dtype.itemsize
    state, wide = 4 * chunks * extent.batch * extent.units, narrow if chunks == 1 else 4
    return {
        "zeros": zeros,
        "packed": packed,
        "d_logits": narrow * extent.steps * extent.batch * columns,  # (T·B, H·S)
        "d_hidden": state,
        "d_cell": state if extent.has_cells else 0,
        "d_sums": 4 * chunks * extent.pairs * columns,
        "product_ih": wide * columns * extent.width if wants_ih else 0,  # (H·S, D)
        "product_hh": wide * columns * extent.units if wants_hh else 0,  # (H·S, H)
    }
