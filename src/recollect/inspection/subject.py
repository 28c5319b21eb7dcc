"""What is traced: a model, what it reads, and the predictions that are explained.

A `Subject` knows one kind of model; everything else in this folder asks it and never branches on the model. A task of
one's own has `subject(model, assets, inputs)` that returns one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from recollect.core.memory import Memory
from recollect.core.record import Recording
from recollect.core.types import AnyLayer, JsonObject
from recollect.inspection.trace import Array, Text
from recollect.layers.pointwise import Pointwise

LONGEST = 256  # tokens that a trace shows
EXPLAINED = 64  # outcomes
CANDIDATES = 10  # next tokens


class Subject:
    """Base: a model with its inputs (S,) or (S, F), and O scalar outcomes that depend on them.

    A subclass sets the attributes, and implements `read` and `values`; `is_causal` where an outcome depends on no input
    behind its `at`.
    """

    kind: ClassVar[str]
    model: Any
    inputs: Tensor  # (S,) ids, or (S, F) values
    tokens: Sequence[str]  # what was read (T)
    source: Sequence[str] = ()  # names of the inputs, where they are not the tokens
    outcomes: Sequence[str] = ()  # texts of the outcomes
    at: Sequence[int] = ()  # the last token that each may depend on
    labels: Sequence[str] = ()
    skipped: int = 0
    shown: slice = slice(None)  # of the steps that layers read, those of the tokens: all but a class token
    is_causal: bool = False

    def read(self) -> dict[str, Array]:
        """Read once, and return what is found beside inner values; called without gradients, while recording."""
        raise NotImplementedError

    def pooled(self, seen: Recording) -> Tensor | None:
        """Return the weights (S,) with which the inputs are pooled, as recorded; None where there are none."""
        return None

    def beside(self) -> dict[str, Array]:
        """Return what other readings find, such as the bytes of the memory; called without gradients."""
        return {}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return outcomes (P,), numbered `outcomes` (P,), of rows (P,) of inputs (R, S′, …).

        removed (R,): the input that each row lacks. Differentiable in the vectors of `entry`, or in the inputs.
        """
        raise NotImplementedError

    @property
    def entry(self) -> Pointwise | None:
        """The layer that maps ids to the vectors whose influence is measured; None: the inputs are vectors."""
        return None

    def without(self, which: Sequence[int]) -> Tensor:
        """Return a row for each of these inputs, with all the others (R, S − 1, …)."""
        everything = torch.arange(len(self.inputs), device=self.inputs.device)
        return torch.stack([self.inputs[everything != i] for i in which])

    def facts(self) -> JsonObject:
        """Return further facts of the model, for `Trace.model`."""
        return {}

    @property
    def why_not_left_out(self) -> Text | None:
        """The reason why no input can be left out; None where it can."""
        return None

    @property
    def why_no_gradient(self) -> Text | None:
        """The reason why there are no gradients; None where there are."""
        if any(p.requires_grad for p in self.model.parameters()):
            return None
        return {
            "en": "the model counts: its probabilities have no gradient; left_out has the influence of each input",
            "zh": "这个模型靠计数，概率没有梯度；每个输入的影响见 left_out",
        }


@contextmanager
def captured(entry: Pointwise) -> Iterator[list[Tensor]]:
    """Collect the vectors that a layer returns in this block, as leaves of the autograd graph.

    Models call an embedding's `map` directly, where a forward hook would not be called.
    """
    found: list[Tensor] = []
    own = entry.map

    def map_to_leaf(x: Tensor) -> Tensor:
        found.append(own(x).detach().requires_grad_())
        return found[-1]

    entry.__dict__["map"] = map_to_leaf
    try:
        yield found
    finally:
        del entry.__dict__["map"]


def first_embedding(model: nn.Module) -> Pointwise | None:
    """Return the first layer that maps ids to vectors."""
    found = (module for module in model.modules() if isinstance(module, Pointwise) and module.width is None)
    return next(found, None)


def likeliest(logprobs: Tensor, count: int = CANDIDATES) -> tuple[Array, Array]:
    """Return ids and probabilities (T, K) of the likeliest of log probabilities (T, V)."""
    best = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
    return best.indices.cpu().numpy(), best.values.double().exp().cpu().numpy()


def as_array(t: Tensor) -> Array:
    """Return a tensor as float64."""
    return t.detach().double().cpu().numpy()


def entropy(logprobs: Tensor) -> Array:
    """Return −Σ p ln p over the last axis."""
    p = logprobs.double().exp()
    return as_array(-(p * logprobs.double().clamp(min=-1e4)).sum(-1))


def device_of(model: nn.Module) -> torch.device:
    """Return where a model is; one that counts has buffers only."""
    first: Any = next(iter([*model.parameters(), *model.buffers()]), None)
    return torch.device("cpu") if first is None else first.device


def texts_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return each id's own text; of a character in several ids the last has it, the others are "⋯"."""
    if not hasattr(tokenizer, "stream"):
        return [str(tokenizer.decode([int(i)])) for i in ids]
    decoding = tokenizer.stream()
    return [decoding.step(int(i)) or "⋯" for i in ids]


def decoded(tokenizer: Any, ids: Array) -> Array:
    """Return the texts of ids of any shape, each decoded alone."""
    known = {int(i): tokenizer.decode([int(i)]) for i in np.unique(ids)}
    return np.array([known[int(i)] for i in ids.reshape(-1)], dtype=object).reshape(ids.shape)


def bytes_by_step(model: AnyLayer, inputs: Tensor, memory: Memory | None = None) -> Array:
    """Return the bytes of a memory after every input, read one by one; at once where it must be."""
    if not model.streams:
        return np.full(len(inputs), model(inputs[None])[1].nbytes)
    sizes = []
    for t in range(len(inputs)):
        _, memory = model(inputs[None, t : t + 1], memory)
        sizes.append(memory.nbytes)
    return np.array(sizes)
