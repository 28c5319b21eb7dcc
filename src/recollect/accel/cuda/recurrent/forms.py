"""Recurrent layers on a GPU: which of our kernels reads one layer, several stacked ones, or both directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile, zip_longest
from typing import Any

import torch
from torch import Tensor

from recollect.accel.cell_inputs import CellInputs, is_as_written
from recollect.accel.cuda.recurrent import persistent
from recollect.accel.cuda.single_step import step_recurrence
from recollect.core.compose import reverse_rows
from recollect.core.memory import Memory
from recollect.core.record import is_watched
from recollect.core.validate import fill_invalid
from recollect.layers.recurrent.recurrence import Hidden, HiddenCell, Recurrence


def read_layer(
    layer: Recurrence[Hidden], x: Tensor, memory: Hidden | None, valid: Tensor | None
) -> tuple[Tensor, Hidden] | None:
    """Read with the persistent kernel, or one step with the single-step kernel; None where neither applies.

    Without a memory no zeros are allocated: the persistent kernel writes its own; for cuDNN one tensor is both h and c.
    """
    if layer.kernel is None or not is_as_written(layer):
        return None
    if memory is None and not layer.begins_with_zeros:
        memory = layer.initial_memory(len(x), like=x)
    if layer.has_own_weights and persistent.takes(layer.kernel, x, layer.hidden):
        y, hidden, cell = persistent.read(layer.kernel, CellInputs.of(layer, x, memory), valid)
        return y, _remember(layer, memory, hidden, cell)
    if x.shape[1] == 1:
        return step_recurrence(layer, layer.kernel, x, memory, valid) if layer.has_own_weights else None
    if memory is not None or not x.is_cuda or not layer.may_fuse(x):
        return None
    zero = x.new_zeros(len(x), layer.hidden)  # (B, H)
    return layer.fused(x, _remember(layer, None, zero, zero if layer.remembers is HiddenCell else None), valid)


def read_stacked(
    layers: Sequence[Any], x: Tensor, memories: Sequence[Hidden | None], valid: Tensor | None
) -> tuple[Tensor, list[Memory]] | None:
    """Read with the first layers of a stack as a wavefront: each reads the chunk that the one below just finished."""
    first = layers[0]
    run = [first, *takewhile(lambda other: _are_alike(first, other), layers[1:])]
    if not _can_read_at_once(run, x, memories, is_stack=True):
        return None
    x = first.enter(x, valid)
    found = _read_several(run, [x], memories[: len(run)], valid, is_stack=True)
    return None if found is None else (found[-1][0], [memory for _, memory in found])


def read_both_directions(
    forwards: Any, backwards: Any, x: Tensor, memories: Sequence[Hidden | None], valid: Tensor | None
) -> list[tuple[Any, Hidden]] | None:
    """Read from both ends at the same time; ragged rows, which end at different steps, are reversed first."""
    if not isinstance(forwards, Recurrence) or not _are_alike(forwards, backwards):
        return None
    layers, is_ragged = [forwards, backwards], valid is not None
    if not _can_read_at_once(layers, x, memories, is_stack=False):
        return None
    xs = [x, reverse_rows(x, valid) if is_ragged else x]
    found = _read_several(layers, xs, memories, valid, is_stack=False, both_directions=not is_ragged)
    if found is not None and is_ragged:
        found[1] = reverse_rows(found[1][0], valid), found[1][1]
    return found


def _are_alike(one: Recurrence[Hidden], other: Any) -> bool:
    """Return whether one kernel can read with both: the same kind and sizes, weights of their own, and no hooks."""
    if type(other) is not type(one) or not (one.has_own_weights and other.has_own_weights):
        return False
    is_same = one.kernel == other.kernel and one.hidden == other.hidden and one._home() == other._home()
    return is_same and not is_watched(one, other)


def _can_read_at_once(
    layers: list[Recurrence[Hidden]], x: Tensor, memories: Sequence[Hidden | None], *, is_stack: bool
) -> bool:
    """Return whether our kernels read with several layers at once; raise where a memory is another layer's."""
    first = layers[0]
    if len(layers) < 2 or first.kernel is None or torch.compiler.is_compiling() or not is_as_written(first):
        return False
    if memories[0] is None and not all(layer.begins_with_zeros for layer in layers):
        return False
    if not persistent.takes_several(first.kernel, x, first.hidden, len(layers), is_stack=is_stack):
        return False
    for layer, memory in zip(layers, memories, strict=False):
        if memory is not None:
            layer._check_memory(memory, x)
    return True


def _read_several(
    layers: list[Recurrence[Hidden]],
    xs: list[Tensor],
    memories: Sequence[Hidden | None],
    valid: Tensor | None,
    **how: bool,
) -> list[tuple[Any, Hidden]] | None:
    givens = [CellInputs.of(layer, x, memory) for layer, x, memory in zip_longest(layers, xs, memories)]
    kernel = layers[0].kernel
    if kernel is None or len({given.needs_gradients() for given in givens}) > 1:  # what is frozen stays frozen
        return None
    found = persistent.read_several(kernel, givens, valid, **how)
    return [
        (None if y is None else fill_invalid(y, valid), _remember(layer, memory, h, c))
        for (y, h, c), layer, memory in zip(found, layers, memories, strict=True)
    ]


def _remember(layer: Recurrence[Hidden], before: Hidden | None, hidden: Tensor, cell: Tensor | None) -> Hidden:
    """Return a memory of the type that was given."""
    kind: Any = layer.remembers if before is None else type(before)
    memory: Hidden = kind(hidden=hidden) if cell is None else kind(hidden=hidden, cell=cell)
    return memory
