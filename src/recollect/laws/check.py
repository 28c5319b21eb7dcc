"""`check_layer`: the laws as one public function, for the package's layers and user-defined ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.validate import ContractError, check_ids
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

    Before them the form: a layer that fails while it reads, or returns other shapes, dtypes or memories than it states,
    breaks the *contract*.

    The laws that may fail for long sequences only are also checked on long examples: 65 and 130 steps, and two chunks
    and more of every chunk size that a layer declares (`chunk_sizes`) or has as an attribute (`chunk`, `mini_batch`,
    `window`, …).

    inputs: (B, T, …) from which the examples are cut, one of them in full length; by default drawn at random.
    memory: of B rows, from which reading starts; required by layers that read a source.
    naive: a readable reference implementation for the law **reference**; by default the layer's own `read`.
    tol: relative to 1 + |value| (gradients: to 1 + the largest of their tensor); 1e-9 in float64, 1e-4 in float32.

    >>> rc.check_layer(rc.Linear(4, 4).double())
    """
    _check_is_layer(layer)
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
        for example in small:
            trial = Trial("contract", copied(example), tol)
            with _failures_named(trial):
                check_form(layer, trial)
        for name in laws:
            law = LAWS[name] if naive is None or name != "reference" else partial(reference, naive=naive)
            for example in [*small, *long] if name in LAWS_OF_LENGTH else small:
                trial = Trial(name, copied(example), tol)
                with _failures_named(trial):
                    law(layer, trial)
    finally:
        layer.train(was_training)


def _check_is_layer(given: object) -> None:
    if not isinstance(given, SequenceLayer):
        got = f"{given.__name__}, a class" if isinstance(given, type) else type(given).__name__
        raise ContractError("layer", got, "a layer with weights, of a class that inherits SequenceLayer")


def copied(example: Example) -> Example:
    """Return an example of its own inputs: a layer that writes to them must not change those of the next law."""
    return replace(example, past=example.past.clone(), x=example.x.clone())


def check_form(layer: Layer, trial: Trial) -> None:
    """Require what all laws rely on: outputs (B, T, width_out) in the layer's dtype, and a memory of the same type."""
    example = trial.example
    memory = example.memory if example.memory is not None else layer.initial_memory(len(example.x), like=example.x)
    result = layer(example.x, memory, valid=example.mask)
    if not isinstance(result, tuple) or len(result) != 2:
        trial.fail(f"reading returns {type(result).__name__}, expected a pair: outputs and memory")
    y, after = result
    shape = (*example.x.shape[:2], layer.width_out)
    if tuple(y.shape) != shape:
        trial.fail(f"outputs have shape {tuple(y.shape)}, expected {shape} of width_out {layer.width_out}")
    dtype = example.x.dtype if example.x.is_floating_point() else layer._home()[0]
    if dtype is not None and y.dtype != dtype:
        trial.fail(f"outputs are {y.dtype}, expected {dtype}")
    if type(after) is not type(memory):
        trial.fail(f"the memory returned is {type(after).__name__}, expected {type(memory).__name__} as was read from")


@contextmanager
def _failures_named(trial: Trial) -> Iterator[None]:
    """Raise `LawBroken` in place of what a layer raises while it reads a lawful example."""
    try:
        yield
    except LawBroken:
        raise
    except Exception as error:
        raise LawBroken(trial.law, f"reading fails with {type(error).__name__}: {error}", trial.example) from error
