"""The memory of a repeated step: tensors at fixed addresses, for any number of rows and source steps up to theirs.

A step is compiled for shapes. So that few of them serve all batches and all sources, rows are padded to one of
`ROW_COUNTS`, and what an encoder wrote to a power of two: with zeros, as `Memory.cat` pads a growing axis, which the
laws make harmless.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils import _pytree

from recollect.accel.model_survey import is_same
from recollect.core.memory import Fixed, Memory

ROW_COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64)  # more rows were not measured to be faster than the model itself
LEAST_SOURCE = 32  # steps of a source, padded


class StepMemory:
    """Leaves for a memory with the layout of `memory`; `view` has its rows and its source's steps alone."""

    def __init__(self, memory: Memory) -> None:
        leaves, self.structure = _pytree.tree_flatten(memory)
        growing = {id(t): part for part in memory.within() for _, t, axis in part._parts() if axis == 1}
        self._is_source = [isinstance(growing.get(id(t)), Fixed) for t in leaves]
        self.shapes = self._padded_shapes(leaves)
        self.leaves = [
            _zeros(shape, dtype, by_head=id(t) in growing and t.dim() == 4)
            for t, (shape, dtype) in zip(leaves, self.shapes, strict=True)
        ]
        self._views: list[Tensor] = []
        self.load(memory)

    def fits(self, memory: Memory) -> bool:
        """Return whether a memory has the same layout and, padded, the same shapes."""
        leaves, structure = _pytree.tree_flatten(memory)
        return bool(structure == self.structure) and self._padded_shapes(leaves) == self.shapes

    def load(self, memory: Memory) -> list[Tensor]:
        """Copy a memory into the leaves; return those that did not hold it already."""
        loaded = _pytree.tree_leaves(memory)
        if [t.shape for t in loaded] != [view.shape for view in self._views]:
            self._views = [self._view(leaf, t) for leaf, t in zip(self.leaves, loaded, strict=True)]
            for leaf in self.leaves:
                leaf.zero_()
        copied = []
        for leaf, view, t in zip(self.leaves, self._views, loaded, strict=True):
            if not is_same(view, t):
                view.copy_(t)
                copied.append(leaf)
        return copied

    def view(self) -> Memory:
        """Return the memory itself, without padding: later steps write into it."""
        found: Memory = _pytree.tree_unflatten(self._views, self.structure)
        return found

    def _padded_shapes(self, leaves: list[Tensor]) -> list[tuple[tuple[int, ...], torch.dtype]]:
        shapes = []
        for t, is_source in zip(leaves, self._is_source, strict=True):
            rows, *rest = t.shape
            if is_source:
                rest[0] = max(LEAST_SOURCE, 1 << (rest[0] - 1).bit_length())
            shapes.append(((padded_rows(rows), *rest), t.dtype))
        return shapes

    @staticmethod
    def _view(leaf: Tensor, t: Tensor) -> Tensor:
        view = leaf
        for axis in range(min(t.dim(), 2)):
            view = view.narrow(axis, 0, t.shape[axis])
        return view


def padded_rows(rows: int) -> int:
    """Return the number of rows that a step for so many is compiled for."""
    return next((count for count in ROW_COUNTS if count >= rows), rows)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, by_head: bool) -> Tensor:
    """Return zeros; keys and values (B, S, N, H) with each head's steps contiguous: matmuls then need no copy."""
    if not by_head:
        return torch.zeros(shape, dtype=dtype)
    rows, steps, heads, width = shape
    return torch.zeros(rows, heads, steps, width, dtype=dtype).transpose(1, 2)
