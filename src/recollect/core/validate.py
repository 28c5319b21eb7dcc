"""Checks of a layer's arguments.

Shapes, dtypes and devices are checked in every `forward`. Values (ids in range, a mask that is a prefix) are
checked where data enters, by `check_ids` and `check_prefix`. `forward` itself checks a mask's values only where that
needs no synchronisation with a device and breaks no compiled graph: on the CPU, outside compilation.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

import torch
from torch import Tensor

from recollect.core.errors import ContractError as ContractError  # the checks' own error, imported with them
from recollect.core.memory import Memory


def check_input(x: object, width: int | None, dtype: torch.dtype | None, device: torch.device | None) -> None:
    """Check x: (B, T, width) floats of the layer's dtype, or (B, T) ids where width is None."""
    if not isinstance(x, Tensor):
        raise ContractError("x", f"a {type(x).__name__}", "a Tensor")
    if width is None:
        if x.dim() != 2:
            raise ContractError("x", f"shape {tuple(x.shape)}", "ids of shape (B, T)")
        if x.dtype not in (torch.int64, torch.int32):
            raise ContractError("x", f"dtype {x.dtype}", "ids of dtype torch.int64 or torch.int32")
    else:
        if x.dim() != 3 or x.shape[2] != width:
            raise ContractError("x", f"shape {tuple(x.shape)}", f"(B, T, {width}): this layer's width is {width}")
        if not x.is_floating_point():
            raise ContractError("x", f"dtype {x.dtype}", f"{dtype or 'floating point'}")
        if dtype is not None and x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
            raise ContractError("x", f"dtype {x.dtype}", f"{dtype}, the dtype of this layer's parameters")
    if device is not None and x.device != device:
        raise ContractError("x", f"device {x.device}", f"{device}, where this layer is")


def check_valid(valid: object, x: Tensor) -> None:
    """Check the mask's shape, dtype and device against x."""
    if not isinstance(valid, Tensor):
        raise ContractError("valid", f"a {type(valid).__name__}", "a Tensor")
    if valid.shape != x.shape[:2]:
        raise ContractError("valid", f"shape {tuple(valid.shape)}", f"{tuple(x.shape[:2])}, the (B, T) of x")
    if valid.dtype != torch.bool:
        raise ContractError("valid", f"dtype {valid.dtype}", "torch.bool, True where a step is real")
    if valid.device != x.device:
        raise ContractError("valid", f"device {valid.device}", f"{x.device}, where x is")


def check_memory(memory: Memory, template: Memory, batch_size: int, name: str = "memory") -> None:
    """Check a memory against the layer's own empty one: kind, sizes, batch, dtype and device."""
    if type(memory) is not type(template):
        raise ContractError(name, type(memory).__name__, f"{type(template).__name__}: it is another layer's memory")
    if memory._identity() != template._identity():
        raise ContractError(name, memory._identity(), f"{template._identity()}: it is another layer's memory")
    for (field, part, axis), (_, own, _) in zip(memory._parts(), template._parts(), strict=True):
        _check_part(part, own, axis, batch_size, f"{name}.{field}")


def _check_part(part: object, template: object, axis: int | None, batch_size: int, name: str) -> None:
    if isinstance(template, Tensor) and isinstance(part, Tensor):
        _check_tensor(part, template, axis, batch_size, name)
    elif isinstance(template, Memory) and isinstance(part, Memory):
        check_memory(part, template, batch_size, name)
    elif isinstance(template, tuple) and isinstance(part, tuple) and len(part) == len(template):
        for i, (p, own) in enumerate(zip(part, template, strict=True)):
            _check_part(p, own, axis, batch_size, f"{name}.{i}")
    else:
        raise ContractError(name, _short(part), _short(template))


def _short(part: object) -> str:
    return f"{len(part)} parts" if isinstance(part, tuple) else f"a {type(part).__name__}"


def _check_tensor(t: Tensor, template: Tensor, axis: int | None, batch_size: int, name: str) -> None:
    expected = [batch_size, *template.shape[1:]]
    if axis is not None and t.dim() > axis:
        expected[axis] = t.shape[axis]  # the growing axis may have any size
    if list(t.shape) != expected:
        raise ContractError(name, f"shape {tuple(t.shape)}", f"{tuple(expected)}; the batch of x has {batch_size} rows")
    if t.device != template.device:
        raise ContractError(name, f"device {t.device}", f"{template.device}, where x is")
    if t.dtype != template.dtype and not torch.is_autocast_enabled(t.device.type):
        raise ContractError(name, f"dtype {t.dtype}", f"{template.dtype}")


class _Looks(local):
    """Whether this thread checks values, and the last mask that passed the check."""

    at_values = True
    known: weakref.ref[Tensor] | None = None
    version = -1

    def is_known(self, valid: Tensor) -> bool:
        """Return whether this tensor passed the check and has not been written to since."""
        return self.known is not None and self.known() is valid and valid._version == self.version

    def remember(self, valid: Tensor) -> None:
        """Remember a tensor; one made in inference mode has no version counter and is checked every time."""
        if not valid.is_inference():
            self.known = weakref.ref(valid)
            self.version = valid._version


_looks = _Looks()


@contextmanager
def without_looks() -> Iterator[None]:
    """Skip the checks of values inside `forward`, for a caller that has checked them and records the operations."""
    before = _looks.at_values
    _looks.at_values = False
    try:
        yield
    finally:
        _looks.at_values = before


def may_look_at(t: Tensor) -> bool:
    """Return whether reading values is free: no synchronisation with a GPU, no break in a compiled graph."""
    return not torch.compiler.is_compiling() and _looks.at_values and t.device.type == "cpu" and t.numel() > 0


def check_ids(ids: Tensor, vocab_size: int, name: str = "ids") -> None:
    """Check values where data enters: every id is in the vocabulary.

    >>> rc.check_ids(torch.tensor([[0, 9]]), vocab_size=10)
    >>> rc.check_ids(torch.tensor([[0, 10]]), vocab_size=10)
    Traceback (most recent call last):
    recollect.core.errors.ContractError: ids: ...
    """
    if ids.numel() == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise ContractError(name, f"ids from {low} to {high}", f"0 to {vocab_size - 1}")


def check_prefix(valid: Tensor) -> None:
    """Check values where data enters: in every row the valid steps come first, then the padding (right padding).

    >>> rc.check_prefix(torch.tensor([[True, True, False]]))
    >>> rc.check_prefix(torch.tensor([[False, True, True]]))
    Traceback (most recent call last):
    recollect.core.errors.ContractError: valid: ...
    """
    begins_again = valid[:, 1:] > valid[:, :-1]  # (B, T - 1)
    if begins_again.any():
        row, before = begins_again.nonzero()[0].tolist()
        prefix = "a prefix of True, then only False: right padding, as rc.pad(sequences) makes it"
        raise ContractError("valid", f"row {row} valid again at step {before + 1}", prefix)


def check_padding(valid: Tensor) -> None:
    """Check in `forward` that rows are prefixes, where reading values is free: on the CPU, outside compilation.

    A stack passes one mask to all its layers; the last mask that passed is not checked again.
    """
    if may_look_at(valid) and valid.shape[1] > 1 and not _looks.is_known(valid):
        check_prefix(valid)
        _looks.remember(valid)


def fill_invalid(t: Tensor, valid: Tensor | None) -> Tensor:
    """Zero the invalid steps. Not by multiplication: NaN times zero is NaN, also in the backward pass."""
    if valid is None:
        return t
    return t.masked_fill(~valid.reshape(*valid.shape, *[1] * (t.dim() - 2)), 0)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that matrix products with x are computed in: autocast's, which spares float64, or that of x."""
    kind = x.device.type
    is_cast = x.dtype is not torch.float64 and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype
