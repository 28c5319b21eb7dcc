"""What training stores: the bytes of the tensors that autograd keeps for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.record import readable
from recollect.core.types import AnyLayer


def saved_bytes(layer: AnyLayer, x: Tensor, memory: Memory | None = None) -> int:
    """Return the bytes that are kept for the backward pass of a layer in its readable form, each buffer once."""
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Any:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), readable():
        y = layer(x, memory)[0]
    y.sum().backward()
    return sum(held.values())


def growth_exponent(bytes_by_steps: Mapping[int, float]) -> float:
    """Return d ln(bytes) / d ln(steps) between the smallest and the largest number of steps."""
    first, last = min(bytes_by_steps), max(bytes_by_steps)
    return math.log(bytes_by_steps[last] / bytes_by_steps[first]) / math.log(last / first)
