"""The running average of a model's weights: what is evaluated and saved instead of the weights of the last update."""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

N = TypeVar("N", bound=nn.Module)


def average_of(model: N) -> N:
    """Return a copy of a model to keep the average of its weights in."""
    copy = deepcopy(model).requires_grad_(False)
    return copy.eval()


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move the average towards the weights after update number `step`: a ← d a + (1 − d) w.

    d = min(decay, (1 + step) / (10 + step)): the first weights, which are random, are soon forgotten (as in
    TensorFlow's ExponentialMovingAverage; Polyak & Juditsky 1992 average with equal weights). Buffers are copied.
    """
    share = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), share)
    for ours, theirs in zip(average.buffers(), model.buffers(), strict=True):
        ours.copy_(theirs)
