"""A model as several processes call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

T = TypeVar("T")


class Host(nn.Module):
    """A model in a module whose `forward` does any work with it.

    DDP and FSDP see the calls of one method alone, and a loss or an evaluation may call any method of the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[..., T], *given: Any) -> T:
        """Return what some work makes of the model."""
        return work(self.model, *given)
