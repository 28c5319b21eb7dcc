"""The body of a trained model as the encoder of another: a language model's, or a masked language model's.

A model that inherits a body keeps its config, so that it is rebuilt from its own folder, without the parent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.types import JsonMapping, JsonObject
from recollect.core.validate import ContractError
from recollect.layers.pointwise import Embedding, Pointwise
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.masked import MaskedConfig, MaskedModel

Trained: TypeAlias = LanguageModel | MaskedModel
SEPARATOR_START = 0.02  # standard deviation of a new vector, as of those that blocks begin with
KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "language": (LanguageConfig, LanguageModel),
    "masked": (MaskedConfig, MaskedModel),
}


class FirstSegment(Pointwise):
    """The vectors of ids and of the first segment: what a masked language model reads of a single text."""

    def __init__(self, embedding: Embedding, segment: nn.Embedding) -> None:
        super().__init__()
        self.embedding, self.segment = embedding, segment
        self.width, self.width_out, self.vocab_size = None, embedding.width_out, embedding.vocab_size

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the ids as the embedding does."""
        return self.embedding.enter(x, valid)

    def map(self, x: Tensor) -> Tensor:
        """Return the vectors (B, T, D)."""
        return self.embedding.map(x) + self.segment.weight[0]


class WithSeparator(Pointwise):
    """The vectors of a trained model's ids, and a new one for the id after its last: the mark between two texts."""

    def __init__(self, embedding: Pointwise) -> None:
        super().__init__()
        self.embedding = embedding
        self.width, self.width_out = None, embedding.width_out
        self.vocab_size = embedding.vocab_size + 1
        self.vector = nn.Parameter(nn.init.normal_(torch.empty(self.width_out), std=SEPARATOR_START))

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the ids as the embedding does."""
        return self.embedding.enter(x, valid)

    def map(self, x: Tensor) -> Tensor:
        """Return the vectors (B, T, D)."""
        is_mark = x == self.vocab_size - 1
        return torch.where(is_mark[..., None], self.vector, self.embedding.map(x.masked_fill(is_mark, 0)))


def body_of(model: Trained) -> tuple[Pointwise, Stack]:
    """Return a trained model's embedding, and its layers from vectors to vectors, without its heads."""
    if isinstance(model, MaskedModel):
        return FirstSegment(model.embedding, model.segment), model.body
    if not isinstance(model.body, Stack):
        raise ContractError("encoder", f"the family {model.config.family!r}, which counts", "one with layers")
    first = model.body[0]
    assert isinstance(first, Pointwise)
    return first, model.body[1:-1]


def saved_body(model: Trained, dropout: float | None = None) -> JsonObject:
    """Return a trained model's config as plain data, from which `build_body` builds; with another dropout if given."""
    kind = "masked" if isinstance(model, MaskedModel) else "language"
    changed = {} if dropout is None else {"dropout": dropout}
    return {"kind": kind, **asdict(model.config), **changed}


def build_body(saved: JsonMapping) -> tuple[Pointwise, Stack]:
    """Return the body of a model of this config, with new weights."""
    if not isinstance(saved, Mapping) or saved.get("kind") not in KINDS:
        raise ValueError(f"body: got {json.dumps(saved)}, expected the config of a trained model")
    config, model = KINDS[saved["kind"]]
    return body_of(model(config(**{name: value for name, value in saved.items() if name != "kind"})))


def longest_of(model: Trained) -> int | None:
    """Return how many ids a model can read, where its positions are a table; None: any number."""
    is_recurrent = isinstance(model, MaskedModel) and model.config.family != "bert"
    return None if is_recurrent else model.config.max_length


def inherited_shape(model: Trained) -> dict[str, int]:
    """Return the sizes of a trained model that cards and plans name."""
    return {"width": model.config.width, "layers": model.config.layers, "heads": model.config.heads}
