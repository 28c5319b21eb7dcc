"""Modules on the meta device: shapes and numbers of parameters without memory, and without drawing weights.

PyTorch draws normal numbers on that device through its Python references, the first of which imports torch._dynamo: a
second of processor time, for numbers that nobody reads. So nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

DRAWING = (torch.Tensor.normal_, nn.init.normal_)


class _NothingDrawn(TorchFunctionMode):
    """Leaves tensors on the meta device as they are where normal numbers are drawn into them."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in DRAWING:
            tensor = args[0] if args else given["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **given)


@contextmanager
def on_meta() -> Iterator[None]:
    """Build what follows on the meta device."""
    with torch.device("meta"), _NothingDrawn():
        yield
