"""What fine-tuning needs of a model: its parts from the bottom to the top, and the weights of another."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from recollect.core.serialize import FileError
from recollect.core.tensor_names import differences
from recollect.core.types import AnyLayer
from recollect.layers.pointwise import Pointwise
from recollect.layers.positions import Positions


def copy_parameters(source: Iterable[nn.Module], target: Iterable[nn.Module]) -> None:
    """Copy parameters in order; raise a `FileError` with the names of those that do not fit.

    By order, not by name: a layer for dropout, which has no parameters, shifts the names of those after it.
    """
    ours, theirs = (
        [(f"{place}.{name}", p) for place, module in enumerate(modules) for name, p in module.named_parameters()]
        for modules in (target, source)
    )
    shapes = [tuple(p.shape) for _, p in theirs]
    if shapes != [tuple(p.shape) for _, p in ours]:
        problems = differences({n: tuple(p.shape) for n, p in theirs}, {n: tuple(p.shape) for n, p in ours})
        raise FileError(f"the parent's weights do not fit: {'; '.join(problems)}")
    with torch.no_grad():
        for (_, new), (_, old) in zip(ours, theirs, strict=True):
            new.copy_(old)


def stages_of(embedding: nn.Module, layers: Iterable[AnyLayer]) -> list[list[nn.Module]]:
    """Return the parts of a body from the bottom to the top: the embedding, then each layer that has a memory.

    Positions, norms and linear maps belong to the stage below them: to the embedding, or to the last layer.
    """
    stages: list[list[nn.Module]] = [[embedding]]
    for layer in layers:
        if isinstance(layer, Pointwise | Positions):
            stages[-1].append(layer)
        else:
            stages.append([layer])
    return stages
