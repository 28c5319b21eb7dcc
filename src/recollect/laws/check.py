"""`check_layer`: the laws as one public function, for our layers and anyone's."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.validate import check_ids
from recollect.laws.examples import draw_inputs, long_examples, small_examples
from recollect.laws.law import LAWS, reference
from recollect.laws.trial import Example, LawBroken, Read, Trial

__all__ = ["LAWS", "Example", "LawBroken", "check_layer"]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
LAWS_OF_LENGTH = ("causality", "split", "gradients", "reference")  # a form for many steps may break these alone


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

    The laws that length may break are also tried on long examples: 65 and 130 steps, and two chunks and more of
    every chunk size that a layer declares (`chunk_sizes`) or has as an attribute (`chunk`, `mini_batch`, `window`, …).

    inputs: (B, T, …) to take the examples from, once in their full length; drawn from the layer's width or vocabulary
        unless given.
    memory: of B rows, where reading starts; needed by layers that read a source.
    naive: a version written for reading, for the law **reference**; otherwise the layer's own `read`.
    tol: relative to 1 + |value| (gradients: to 1 + the largest of their tensor); 1e-9 in float64, 1e-4 in float32.

    >>> rc.check_layer(rc.Linear(4, 4).double())
    """
    was_training = layer.training
    layer.eval()
    try:
        x = draw_inputs(layer, seed, memory) if inputs is None else inputs
        if layer.width is None:
            check_ids(x, layer.vocab_size, "inputs")
        tol = TOLERANCE.get(_dtype(layer, x), 1e-2) if tol is None else tol
        draw = random.Random(seed)
        small = list(small_examples(x, memory, draw))
        long = list(long_examples(layer, x, memory, draw))
        for name in laws:
            law = LAWS[name] if naive is None or name != "reference" else partial(reference, naive=naive)
            for example in [*small, *long] if name in LAWS_OF_LENGTH else small:
                # copies: a layer that changes its inputs must not change those of the next law
                own = replace(example, past=example.past.clone(), x=example.x.clone())
                law(layer, Trial(name, own, tol))
    finally:
        layer.train(was_training)


def _dtype(layer: SequenceLayer[Any], x: Tensor) -> torch.dtype:
    if x.is_floating_point():
        return x.dtype
    return layer._home()[0] or torch.float64
