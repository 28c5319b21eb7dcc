"""Memory that a walk shares out: to ask for it once takes a host less than to ask for every part of it.

Parts lie in one room if they are let go together. What a caller keeps, outputs and the last states, has memory of its
own, so that nobody holds a room by holding a part of it.
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
    dtype: torch.dtype  # of products
    has_x: bool = True  # False: another layer has laid x out

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
        """Pairs of rows, which sum on the way back together."""
        return -(-self.batch // 2)


Parts = dict[str, int]  # bytes by name


class Layout(NamedTuple):
    """Where each part begins, and where all end, in bytes."""

    starts: Parts
    size: int


def lay_out(parts: Parts) -> Layout:
    """Put parts one after the other; one of no bytes is none."""
    starts, end = {}, 0
    for name, size in parts.items():
        if size:
            starts[name] = end
            end += -(-size // ALIGNED) * ALIGNED
    return Layout(starts, end)


class Room:
    """Memory, and what lies where in it."""

    def __init__(self, memory: Tensor, layout: Layout) -> None:
        self.memory, self.layout, self.starts = memory, layout, layout.starts
        begin = memory.data_ptr()
        self.addresses = {name: begin + start for name, start in layout.starts.items()}

    @classmethod
    def make(cls, like: Tensor, dtype: torch.dtype, layout: Layout) -> Room:
        """Ask for memory, where a tensor is."""
        return cls(like.new_empty(layout.size // dtype.itemsize, dtype=dtype), layout)

    def matrix(self, name: str, rows: int, columns: int, *, after: int = 0) -> Tensor:
        """Return rows of a part as a matrix, in the room's dtype, after so many others."""
        start = self.starts[name] // self.memory.itemsize + after * columns
        return self.memory.as_strided((rows, columns), (columns, 1), start)

    def crossed(self, name: str, rows: int, columns: int) -> Tensor:
        """Return the transpose of such a matrix: one view instead of two."""
        return self.memory.as_strided((columns, rows), (1, columns), self.starts[name] // self.memory.itemsize)

    def floats(self, name: str, rows: int, columns: int, *, after: int = 0) -> Tensor:
        """Return rows of a part in float32, after so many others."""
        return self._wide.as_strided((rows, columns), (columns, 1), self.starts[name] // 4 + after * columns)

    @cached_property
    def _wide(self) -> Tensor:
        return self.memory.view(torch.float32)


def forward_parts(extent: Extent, zeros: int, packed: int, pieces: int, *, has_bias: bool) -> Parts:
    """What the walk forward needs as long as it goes on; last_h and last_c after each piece (pieces, B, H)."""
    state = 4 * extent.batch * extent.units
    parts = {"zeros": zeros, "packed": packed, "bias": 4 * extent.columns if has_bias else 0}
    parts |= {"first_h": state, "last_h": pieces * state}
    return parts | {"first_c": state, "last_c": pieces * state} if extent.has_cells else parts


def kept_parts(extent: Extent, *, keeps: bool) -> Parts:
    """What is read in products, and again on the way back: there also all c (T + 1, B, H), c_0 first or last."""
    rows, units, size = extent.steps * extent.batch, extent.units, extent.dtype.itemsize
    return {
        "slotted": size * extent.columns * extent.width,  # (H·S, D)
        "by_time": size * rows * extent.width if extent.has_x else 0,  # (T·B, D)
        "gates": size * rows * extent.columns,  # (T·B, H·S): logits before the walk
        "cells": size * (rows + extent.batch) * units if keeps and extent.has_cells else 0,
    }


def backward_parts(extent: Extent, zeros: int, packed: int, pieces: int, *, wants_ih: bool, wants_hh: bool) -> Parts:
    """What the walk back needs and gives, but for what the caller is given.

    Gradients at the states before each piece (pieces, B, H), sums over the steps of a piece by pairs of rows, and the
    products that are gradients of weights, slot by slot; pieces of these are added up in float32.
    """
    columns, narrow = extent.columns, extent.dtype.itemsize
    state, wide = 4 * pieces * extent.batch * extent.units, narrow if pieces == 1 else 4
    return {
        "zeros": zeros,
        "packed": packed,
        "d_logits": narrow * extent.steps * extent.batch * columns,  # (T·B, H·S)
        "d_hidden": state,
        "d_cell": state if extent.has_cells else 0,
        "d_sums": 4 * pieces * extent.pairs * columns,
        "product_ih": wide * columns * extent.width if wants_ih else 0,  # (H·S, D)
        "product_hh": wide * columns * extent.units if wants_hh else 0,  # (H·S, H)
    }
