"""`check_layer`: the laws as one public function, for the package's layers and user-defined ones."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.validate import check_ids
from recollect.laws.examples import draw_inputs, long_examples, small_examples
from recollect.laws.law import LAWS, reference
from recollect.laws.trial import Example, LawBroken, Layer, Read, Trial

__all__ = ["LAWS", "Example", "LawBroken", "check_layer"]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
LAWS_OF_LENGTH = ("causality", "split", "gradients", "reference")  # those that may fail for long sequences only


def check_layer(
    layer: Layer,
    inputs: Tensor | None = None,
    memory: Memory | None = None,
    *,
    naive: Read | None = None,
    laws: Iterable[str] = tuple(LAWS),
    tol: float | None = None,
    seed: int = 0,
) -> None:
    """Check the nine laws on a layer, from small examples to large ones, and raise `LawBroken` at the first fault.

    The laws that may fail for long sequences only are also checked on long examples: 65 and 130 steps, and two chunks
    and more of every chunk size that a layer declares (`chunk_sizes`) or has as an attribute (`chunk`, `mini_batch`,
    `window`, …).

    inputs: (B, T, …) from which the examples are cut, one of them in full length; by default drawn at random.
    memory: of B rows, from which reading starts; required by layers that read a source.
    naive: a readable reference implementation for the law **reference**; by default the layer's own `read`.
    tol: relative to 1 + |value| (gradients: to 1 + the largest of their tensor); 1e-9 in float64, 1e-4 in float32.

    >>> rc.check_layer(rc.Linear(4, 4).double())
    """
    was_training = layer.training
    layer.eval()
    try:
        x = draw_inputs(layer, seed, memory) if inputs is None else inputs
        if layer.width is None:
            check_ids(x, layer.vocab_size, "inputs")
        if tol is None:
            dtype = x.dtype if x.is_floating_point() else layer._home()[0] or torch.float64
            tol = TOLERANCE.get(dtype, 1e-2)
        draw = random.Random(seed)
        small = list(small_examples(x, memory, draw))
        long = list(long_examples(layer, x, memory, draw))
        for name in laws:
            law = LAWS[name] if naive is None or name != "reference" else partial(reference, naive=naive)
            for example in [*small, *long] if name in LAWS_OF_LENGTH else small:
                # copies: a layer that writes to its inputs must not change those of the next law
                own = replace(example, past=example.past.clone(), x=example.x.clone())
                law(layer, Trial(name, own, tol))
    finally:
        layer.train(was_training)
