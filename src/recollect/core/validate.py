"""The door of a layer: what may come in, and what is said when something else does.

Shapes, dtypes and devices are checked in every `forward`. Values (ids in range, a mask that is a prefix) are
checked where data enters, by `check_ids` and `check_prefix`. `forward` itself checks a mask's values only where that
needs no synchronisation with a device and breaks no compiled graph: on the CPU, outside compilation.
"""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch import Tensor

from recollect.core.memory import Memory


class ContractError(ValueError):
    """Something that a layer cannot read: names the argument, what it got and what was expected.

    >>> rc.GRU(4, 8)(torch.zeros(2, 5, 3))
    Traceback (most recent call last):
    recollect.core.validate.ContractError: x: got ...
    """

    def __init__(self, argument: str, got: object, expected: object) -> None:
        super().__init__(f"{argument}: got {got}, expected {expected}")
        self.argument = argument


def check_input(x: Any, width: int | None, dtype: torch.dtype | None, device: torch.device | None) -> None:
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


def check_valid(valid: Any, x: Tensor) -> None:
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
    seen, wanted = memory._identity(), template._identity()
    if seen != wanted:
        raise ContractError(name, seen, f"{wanted}: it is another layer's memory")
    for (field, part, axis), (_, own, _) in zip(memory._parts(), template._parts(), strict=True):
        _check_part(part, own, axis, batch_size, f"{name}.{field}")


def _check_part(part: object, wanted: object, axis: int | None, batch_size: int, name: str) -> None:
    if isinstance(wanted, Tensor) and isinstance(part, Tensor):
        _check_tensor(part, wanted, axis, batch_size, name)
    elif isinstance(wanted, Memory) and isinstance(part, Memory):
        check_memory(part, wanted, batch_size, name)
    elif isinstance(wanted, tuple) and isinstance(part, tuple) and len(part) == len(wanted):
        for i, (p, w) in enumerate(zip(part, wanted, strict=True)):
            _check_part(p, w, axis, batch_size, f"{name}.{i}")
    else:
        raise ContractError(name, _short(part), _short(wanted))


def _short(part: object) -> str:
    return f"{len(part)} parts" if isinstance(part, tuple) else f"a {type(part).__name__}"


def _check_tensor(t: Tensor, wanted: Tensor, axis: int | None, batch_size: int, name: str) -> None:
    free = t.shape[axis] if axis is not None and t.dim() > axis else None
    want = [batch_size, *wanted.shape[1:]]
    if axis is not None and free is not None:
        want[axis] = free
    if list(t.shape) != want:
        raise ContractError(name, f"shape {tuple(t.shape)}", f"{tuple(want)}; the batch of x has {batch_size} rows")
    if t.device != wanted.device:
        raise ContractError(name, f"device {t.device}", f"{wanted.device}, where x is")
    if t.dtype != wanted.dtype and not torch.is_autocast_enabled(t.device.type):
        raise ContractError(name, f"dtype {t.dtype}", f"{wanted.dtype}")


class _Looks(local):
    """Whether this thread looks at values, and the last mask that it found to be good."""

    at_values = True
    known: weakref.ref[Tensor] | None = None
    version = -1

    def is_known(self, valid: Tensor) -> bool:
        """Whether this very tensor was remembered and has not been written to since."""
        return self.known is not None and self.known() is valid and valid._version == self.version

    def remember(self, valid: Tensor) -> None:
        """Remember a tensor; one made in inference mode does not count its changes and is looked at every time."""
        if not valid.is_inference():
            self.known = weakref.ref(valid)
            self.version = valid._version


_looks = _Looks()


@contextmanager
def without_looks() -> Iterator[None]:
    """Do not look at values inside `forward`, for someone who has seen to them and records what is done."""
    before, _looks.at_values = _looks.at_values, False
    try:
        yield
    finally:
        _looks.at_values = before


def may_look_at(t: Tensor) -> bool:
    """Whether a look at values costs nothing: not a GPU's time, and not the wholeness of a graph."""
    return not torch.compiler.is_compiling() and _looks.at_values and t.device.type == "cpu" and t.numel() > 0


def check_ids(ids: Tensor, vocab_size: int, name: str = "ids") -> None:
    """Check values, where data enters: every id names a symbol.

    >>> rc.check_ids(torch.tensor([[0, 9]]), vocab_size=10)
    >>> rc.check_ids(torch.tensor([[0, 10]]), vocab_size=10)
    Traceback (most recent call last):
    recollect.core.validate.ContractError: ids: ...
    """
    if ids.numel() == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise ContractError(name, f"ids from {low} to {high}", f"0 to {vocab_size - 1}")


def check_prefix(valid: Tensor) -> None:
    """Check values, where data enters: every row is valid first, padding after (right padding).

    >>> rc.check_prefix(torch.tensor([[True, True, False]]))
    >>> rc.check_prefix(torch.tensor([[False, True, True]]))
    Traceback (most recent call last):
    recollect.core.validate.ContractError: valid: ...
    """
    begins_again = valid[:, 1:] > valid[:, :-1]  # (B, T - 1)
    if begins_again.any():
        row, before = begins_again.nonzero()[0].tolist()
        prefix = "a prefix of True, then only False: right padding, as rc.pad(sequences) makes it"
        raise ContractError("valid", f"row {row} valid again at step {before + 1}", prefix)


def check_padding(valid: Tensor) -> None:
    """Check in `forward` that rows are prefixes, where a look costs little: on the CPU, outside compilation.

    A stack passes one mask to all its layers; the last mask found to be good is not looked at again.
    """
    if may_look_at(valid) and valid.shape[1] > 1 and not _looks.is_known(valid):
        check_prefix(valid)
        _looks.remember(valid)


def fill_invalid(t: Tensor, valid: Tensor | None) -> Tensor:
    """Zero what is not valid. Never by a product: NaN times zero is NaN, also in backward."""
    if valid is None:
        return t
    return t.masked_fill(~valid.reshape(*valid.shape, *[1] * (t.dim() - 2)), 0)


def check_choice(what: str, got: str, choices: Sequence[str]) -> None:
    """Refuse a word that is not among the choices."""
    if got not in choices:
        raise ValueError(f"{what}: got {got!r}, expected one of {', '.join(choices)}{nearest(got, choices)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Give '; did you mean …?' for the known names closest to an unknown one, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that matrix products with x are computed in: autocast's, which spares float64, or that of x."""
    kind = x.device.type
    is_cast = x.dtype is not torch.float64 and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype
