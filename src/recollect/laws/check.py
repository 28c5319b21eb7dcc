"""`check_layer`: the laws as one public function, for our layers and anyone's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.validate import check_ids
from recollect.laws.law import LAWS, reference
from recollect.laws.trial import Example, LawBroken, Read, Trial

__all__ = ["LAWS", "Example", "LawBroken", "check_layer"]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
SIZES = [(0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (2, 3), (3, 5), (3, 9), (3, 33)]  # (B, T), smallest first
PAST = [1, 0, 0, 1, 2, 0, 3, 5, 2]


def check_layer(
    layer: SequenceLayer[Any],
    inputs: Tensor | None = None,
    memory: Memory | None = None,
    *,
    naive: Read | None = None,
    laws: Iterable[str] = tuple(LAWS),
    tol: float | None = None,
    seed: int = 0,
) -> None:
    """Try the nine laws on a layer, from small examples to large ones, and raise `LawBroken` at the first fault.

    inputs: (B, T, …) to take the examples from; drawn from the layer's width or vocabulary unless given.
    memory: of B rows, where reading starts; needed by layers that read a source.
    naive: a version written for reading, for the law **reference**; otherwise the layer's own `read`.
    tol: relative to 1 + |value| (gradients: to 1 + the largest of their tensor); 1e-9 in float64, 1e-4 in float32.
    """
    was_training = layer.training
    layer.eval()
    try:
        x = _draw(layer, seed) if inputs is None else inputs
        if layer.width is None:
            check_ids(x, layer.vocab_size, "inputs")
        tol = TOLERANCE.get(_dtype(layer, x), 1e-2) if tol is None else tol
        examples = list(_examples(x, memory, random.Random(seed)))
        for name in laws:
            law = LAWS[name] if naive is None or name != "reference" else partial(reference, naive=naive)
            for example in examples:
                # copies: a layer that changes its inputs must not change those of the next law
                own = replace(example, past=example.past.clone(), x=example.x.clone())
                law(layer, Trial(name, own, tol))
    finally:
        layer.train(was_training)


def _draw(layer: SequenceLayer[Any], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    b, t = max(b for b, _ in SIZES), max(t + p for (_, t), p in zip(SIZES, PAST, strict=True))
    dtype, device = layer._home()
    if layer.width is None:
        return torch.randint(layer.vocab_size, (b, t), generator=generator).to(device)
    return (
        torch.randn(b, t, layer.width, generator=generator, dtype=torch.float64).to(dtype or torch.float64).to(device)
    )


def _dtype(layer: SequenceLayer[Any], x: Tensor) -> torch.dtype:
    if x.is_floating_point():
        return x.dtype
    return layer._home()[0] or torch.float64


def _examples(x: Tensor, memory: Memory | None, draw: random.Random) -> Iterator[Example]:
    """Cut examples out of the inputs: full rows, ragged rows, and all rows empty, at every size."""
    for (b, t), p in zip(SIZES, PAST, strict=True):
        b, p = min(b, len(x)), min(p, x.shape[1])
        t = min(t, x.shape[1] - p)
        cuts = tuple(sorted(draw.sample(range(1, t), min(2, t - 1)))) if t > 1 else ()
        ragged = tuple(draw.randint(0, t) for _ in range(b))
        for lengths in dict.fromkeys([(t,) * b, ragged, (0,) * b]):
            start = None if memory is None else memory.select(list(range(b)))
            yield Example(past=x[:b, :p], x=x[:b, p : p + t], lengths=lengths, cuts=cuts, memory=start)
