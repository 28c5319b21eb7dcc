"""The classifier: a sequence to one label, with any layer of the line as its encoder.

scores, memory = model(ids, memory)      # (B, T, C): of the label of what has been read so far
scores = model.classify(ids, valid)      # (B, C): of the whole sequence
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Stack, strongest_growth
from recollect.core.errors import check_choice, is_own
from recollect.core.memory import Layers, Memory
from recollect.core.settings import setting
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.pointwise import Dropout
from recollect.layers.pools import POOLS, Pool
from recollect.models.encoding import ENCODERS, EncoderConfig, encoder_settings
from recollect.models.labelling import LabelModel

POOLINGS = (*POOLS, "class-token")
BAGS = ("bag-of-words", "bag-of-ngrams")
CLASSIFIERS = ("majority", *BAGS, "per-word", *ENCODERS)


@dataclass(frozen=True)
class ClassifierConfig(EncoderConfig):
    """The config of a classifier; each family uses some of the settings.

    >>> config = rc.ClassifierConfig("bilstm", vocab_size=100, labels=3, width=16)
    >>> rc.Classifier(config).classify(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3])
    """

    pooling: str = setting("max", choices=POOLINGS, help="how the steps become one vector")
    ngrams: int = setting(3, least=1, most=9, help="of a bag of n-grams: symbols of the longest")
    buckets: int = setting(2**18, least=1, help="of a bag of n-grams: rows that n-grams of two and more symbols share")
    families: ClassVar[tuple[str, ...]] = CLASSIFIERS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("pooling", self.pooling, POOLINGS)


def classifier_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    pooled = family in ("per-word", *ENCODERS) or is_own(family)
    hashed = ("ngrams", "buckets") if family == "bag-of-ngrams" else ()
    return (*encoder_settings(family), *(("pooling",) if pooled else ()), *hashed)


class Classifier(LabelModel):
    """An encoder, a pool of its steps into one vector, and a linear map to the scores of the labels.

    `pooling`: "last" (of a bidirectional encoder the last state of each direction), "mean", "max", "attention" (Lin et
    al. 2017), or "class-token": a learned vector is read with the text and its feature is the pool. A streaming encoder
    reads it after the text (Radford et al. 2018), one that sees the whole sequence before it (Devlin et al. 2019).

    Where the encoder streams, the scores at step t are those of the text up to t. Where it does not, and with a class
    token, they are those of the whole text at every step.

    >>> model = rc.Classifier(rc.LSTM(64, 64), labels=3)
    >>> x = torch.randn(2, 7, 64)
    >>> scores, memory = model(x)
    >>> scores.shape, torch.allclose(scores[:, -1], model.classify(x), atol=1e-6)
    (torch.Size([2, 7, 3]), True)
    """

    def __init__(
        self,
        encoder: AnyLayer | ClassifierConfig | str,
        labels: int | None = None,
        *,
        pooling: str | None = None,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        if isinstance(encoder, str):
            encoder = ClassifierConfig(
                encoder, labels=labels or 0, pooling=pooling or "max", dropout=dropout, **options
            )
        if isinstance(encoder, ClassifierConfig):
            labels, pooling, dropout = encoder.labels, encoder.pooling, encoder.dropout
        if labels is None:
            raise ContractError("labels", None, "the number of labels, as in Classifier(rc.LSTM(64, 64), labels=3)")
        super().__init__(encoder, labels, dropout)
        self.pooling = pooling or "last"
        check_choice("pooling", self.pooling, POOLINGS)
        width = self.encoder.width_out
        self.pool: Pool[Any] | None = None if self.pooling == "class-token" else POOLS[self.pooling](width)
        if self.pool is None:
            self.token = nn.Parameter(nn.init.normal_(torch.empty(self.encoder.width or 0), std=0.1))
        else:
            self.growth = strongest_growth([self.encoder, self.pool])

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks: where the encoder streams and there is no class token."""
        return self.encoder.streams and self.pool is not None

    @property
    def trains_head_alone(self) -> bool:
        """Whether all that is trained comes after the pooled vector, which is then the same in every epoch."""
        below = {id(p) for p in self.parameters()} - {id(p) for p in self.head.parameters()}
        is_trained = any(p.requires_grad and id(p) in below for p in self.parameters())
        return not is_trained and not self.word_dropout

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memories of the encoder and of the pool."""
        encoded = self.encoder.initial_memory(batch_size, like)
        if self.pool is None:
            return Layers(layers=(encoded,))
        is_float = like is not None and like.is_floating_point()
        return Layers(layers=(encoded, self.pool.initial_memory(batch_size, like if is_float else self.out.weight)))

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return the pooled vectors (B, T, D), and the memory after."""
        before = self._memory(memory, x)
        if self.pool is None or not self.encoder.streams:
            vector, after = self.pooled(x, before, valid=valid)
            return fill_invalid(vector[:, None].expand(-1, x.shape[1], -1), valid), after
        steps, encoded = self.encoder(self.embed(x, valid), before.layers[0], valid=valid)
        y, pooled = self.pool(steps, before.layers[1], valid=valid)
        return y, Layers(layers=(encoded, pooled))

    def pooled(self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None) -> tuple[Tensor, Memory]:
        """Return one vector of each whole sequence (B, D), and the memory after."""
        before = self._memory(memory, x)
        vectors = self.embed(x, valid)
        if self.pool is None:
            vector, encoded = self._class_feature(vectors, before.layers[0], valid)
            return vector, Layers(layers=(encoded,))
        steps, encoded = self.encoder(vectors, before.layers[0], valid=valid)
        steps = fill_invalid(steps, valid)
        behind = _backward_width(self.encoder) if self.pooling == "last" else 0
        vector, pooled = self.pool.final(steps, before.layers[1], valid)
        if behind and x.shape[1]:  # the backward direction ends at the first step
            vector = torch.cat([vector[:, :-behind], steps[:, 0, -behind:]], dim=1)
        return vector, Layers(layers=(encoded, pooled))

    def classify(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the scores of each whole sequence (B, C)."""
        return self.score(self.pooled(self.enter(x, valid), valid=valid)[0])

    def _class_feature(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        token = self.token.expand(len(x), 1, -1)
        if self.encoder.streams:
            _, after = self.encoder(x, memory, valid=valid)
            return self.encoder(token, after)[0][:, 0], after
        seen = None if valid is None else torch.cat([valid.new_ones(len(x), 1), valid], dim=1)
        y, after = self.encoder(torch.cat([token, x], dim=1), memory, valid=seen)
        return y[:, 0], after

    def _memory(self, memory: Memory | None, x: Tensor) -> Layers:
        memory = self.initial_memory(len(x), like=x) if memory is None else memory
        if not isinstance(memory, Layers) or len(memory.layers) != (1 if self.pool is None else 2):
            raise ContractError("memory", type(memory).__name__, "Layers, of the encoder and the pool")
        return memory


def _backward_width(encoder: AnyLayer) -> int:
    """Return how many of the last features are those of a backward direction."""
    layers = list(encoder) if isinstance(encoder, Stack) else [encoder]
    last = next((layer for layer in reversed(layers) if not isinstance(layer, Dropout)), None)
    return last.backwards.width_out if isinstance(last, Bidirectional) else 0
