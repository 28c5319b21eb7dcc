"""The matcher: a query and a text, read as one sequence, to a score of every place or of the pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recollect.core.memory import Layers, Memory
from recollect.core.record import note
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.pointwise import Pointwise
from recollect.models.encoding import ENCODERS, EncoderConfig, encoder_settings
from recollect.models.inherited import WithSeparator
from recollect.models.labelling import LabelModel

MATCHERS = ("per-word", *ENCODERS)


@dataclass(frozen=True)
class MatcherConfig(EncoderConfig):
    """The config of a matcher: an encoder's, and the scores of a place. The last id is the separator.

    >>> config = rc.MatcherConfig("bigru", vocab_size=20, width=8)
    >>> rc.Matcher(config).separator
    19
    """

    points: bool = True  # False: scores of pairs
    pointers: int = 1  # 2: of an answer's first and last symbol
    separator: int | None = None  # the id between query and text; None: the last
    families: ClassVar[tuple[str, ...]] = MATCHERS


def matcher_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return encoder_settings(family)


@dataclass(frozen=True, eq=False, kw_only=True)
class Query(Memory):
    """The feature of the last separator; zero before there is one."""

    vector: Tensor  # (B, D)


class Matcher(LabelModel):
    """An encoder reads query, separator and text; additive attention from the query scores the text's places.

    h = encoder(query; separator; text);  q = h at the separator
    f_s = tanh(W h_s + U q + b);  e_s = vᵀ f_s + c;  p(s) = softmax_s e_s over the text       (Bahdanau et al. 2015)

    p points at places: the probability of an answer is the sum over the places where it stands (Kadlec et al. 2016,
    "attention sum"). An answer of several symbols has a v for its first and one for its last (Wang & Jiang 2017). The
    score of a pair is vᵀ max_s f_s + c: query and text are read by one network, as Cho et al. 2014 score pairs of
    phrases. Where we differ: the query is read before the text, so that encoders that stream know what is asked.

    Where the encoder streams, so does the matcher: the query is kept in the memory.

    >>> model = rc.Matcher("gru", vocab_size=10, width=8)
    >>> ids = torch.tensor([[1, 2, 9, 3, 4, 5]])  # a query of two symbols, the separator 9, a text of three
    >>> model(ids)[0].shape, model.rank(ids).shape
    (torch.Size([1, 6, 1]), torch.Size([1]))
    """

    def __init__(self, config: MatcherConfig | str, **options: Any) -> None:
        config = MatcherConfig(config, **options) if isinstance(config, str) else config
        if config.vocab_size < 2:
            raise ContractError("vocab_size", config.vocab_size, "at least 2: a symbol and the separator")
        super().__init__(config, config.pointers, config.dropout)
        self.growth = "constant" if self.growth == "none" else self.growth  # the query is kept
        self.points = config.points
        self.separator = config.vocab_size - 1 if config.separator is None else config.separator
        if self.embedding is not None and self.separator >= self.embedding.vocab_size:
            self.embedding = WithSeparator(self.embedding)  # of a trained model that has no mark between two texts
            self.vocab_size = self.embedding.vocab_size
        width = self.encoder.width_out
        self.of_place = nn.Linear(width, width)
        self.of_query = nn.Linear(width, width, bias=False)

    def inherited_embedding(self) -> Pointwise | None:
        """Return the embedding as a trained model has it."""
        return self.embedding.embedding if isinstance(self.embedding, WithSeparator) else self.embedding

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memory of the encoder, and a query of zeros."""
        is_float = like is not None and like.is_floating_point()
        options = self._like(like if is_float else self.out.weight)
        query = Query(vector=torch.zeros(batch_size, self.encoder.width_out, **options))
        return Layers(layers=(self.encoder.initial_memory(batch_size, like), query))

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return f (B, T, D), and the memory after."""
        before = self.initial_memory(len(x), like=x) if memory is None else memory
        if not isinstance(before, Layers) or len(before.layers) != 2 or not isinstance(before.layers[1], Query):
            raise ContractError("memory", type(before).__name__, "Layers, of the encoder and the query")
        steps, encoded = self.encoder(self.embed(x, valid), before.layers[0], valid=valid)
        steps = fill_invalid(steps, valid)
        asked = self._queries(x, steps, before.layers[1].vector, valid)  # (B, T, D)
        after = asked[:, -1].clone() if x.shape[1] else before.layers[1].vector
        found = torch.tanh(self.of_place(steps) + self.of_query(asked))
        return fill_invalid(found, valid), Layers(layers=(encoded, Query(vector=after)))

    def _queries(self, x: Tensor, steps: Tensor, before: Tensor, valid: Tensor | None) -> Tensor:
        """Return at each step the feature of the last separator so far, or the one remembered."""
        is_mark = x == self.separator if valid is None else (x == self.separator) & valid
        place = torch.arange(1, x.shape[1] + 1, device=x.device) * is_mark
        last = place.cummax(1).values if x.shape[1] else place  # (B, T), 0: none yet
        every = torch.cat([before[:, None], steps], dim=1)  # (B, 1 + T, D)
        return every.gather(1, last[..., None].expand(-1, -1, steps.shape[2]))

    def point(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return log p of each place of the texts (B, P, T), −∞ elsewhere."""
        scores = self(x, valid=valid)[0].transpose(1, 2)  # (B, P, T)
        logs = scores.masked_fill(~self.is_text(x, valid)[:, None], -torch.inf).log_softmax(2)
        note(self, weights=logs.exp())
        return logs

    def rank(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the score of each pair of a query and a text (B,)."""
        x = self.enter(x, valid)
        found, _ = self.features(x, valid=valid)
        is_text = self.is_text(x, valid)[..., None]
        least = torch.finfo(found.dtype).min
        highest = found.masked_fill(~is_text, least).amax(1)  # (B, D)
        return self.score(highest)[:, 0]

    def is_text(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return which steps stand behind the separator (B, T)."""
        is_mark = x == self.separator
        behind = (is_mark.long().cumsum(1) > 0) & ~is_mark
        return behind if valid is None else behind & valid
