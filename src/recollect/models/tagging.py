"""The tagger: a tag for every step of a sequence, each alone or all together by a conditional random field.

scores, memory = model(ids, memory)      # (B, T, C): of every tag at every step
tags, logprob = model.tags(ids, valid)   # (B, T), (B,): the best sequence
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.settings import setting
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.crf import CRF
from recollect.models.encoding import EncoderConfig, encoder_settings
from recollect.models.labelling import LabelModel
from recollect.models.subwords import Subwords


@dataclass(frozen=True)
class TaggerConfig(EncoderConfig):
    """The config of a tagger; each family uses some of the settings.

    >>> config = rc.TaggerConfig("bilstm", vocab_size=100, labels=5, width=16, crf=True)
    >>> rc.Tagger(config).tags(torch.tensor([[1, 2, 3]]))[0].shape
    torch.Size([1, 3])
    """

    crf: bool = setting(False, help="choose all tags of a sequence together, by a conditional random field")
    subwords: bool = False  # words are rows of subwords (B, T, K)
    frame: tuple[int, ...] = ()  # ids before and after all subwords


def tagger_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return () if family == "majority" else (*encoder_settings(family), "crf")


class Tagger(LabelModel):
    """An encoder and a linear map to the scores of the tags at every step.

    With `crf` the scores are those of a `CRF`, and the best sequence is found by the Viterbi algorithm (Huang et al.
    2015); without, every step's best tag is chosen alone.

    >>> model = rc.Tagger(rc.Bidirectional(rc.GRU(8, 8), rc.GRU(8, 8)), labels=4, crf=True)
    >>> scores, memory = model(torch.randn(2, 5, 8))
    >>> scores.shape, model.tags(torch.randn(2, 5, 8))[0].shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5]))
    """

    def __init__(
        self,
        encoder: AnyLayer | TaggerConfig | str,
        labels: int | None = None,
        *,
        crf: bool = False,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        if isinstance(encoder, str):
            encoder = TaggerConfig(encoder, labels=labels or 0, crf=crf, dropout=dropout, **options)
        if isinstance(encoder, TaggerConfig):
            labels, crf, dropout = encoder.labels, encoder.crf, encoder.dropout
        if labels is None:
            raise ContractError("labels", None, "the number of tags, as in Tagger(rc.LSTM(64, 64), labels=17)")
        super().__init__(encoder, labels, dropout)
        self.crf = CRF(labels) if crf else None
        self.subwords: Subwords | None = None
        if self.config is not None and getattr(self.config, "subwords", False):
            self.subwords = Subwords(self.config.frame, is_last=self.encoder.streams)  # type: ignore[attr-defined]

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Return the initial memory of the encoder."""
        memory: Memory = self.encoder.initial_memory(batch_size, like)
        return memory

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return the encoder's vectors (B, T, D), and the memory after."""
        memory = self.initial_memory(len(x), like=x) if memory is None else memory
        if self.subwords is None:
            return self.encoder(self.embed(x, valid), memory, valid=valid)
        ids, seen, places = self.subwords.flatten(x)
        y, after = self.encoder(self.embed(ids, seen), memory, valid=seen)
        if not y.shape[1]:  # no subword at all
            return y.new_zeros(*x.shape[:2], y.shape[2]), after
        return y.gather(1, places[..., None].expand(-1, -1, y.shape[2])), after

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the inputs as the embedding does; those of a model of subwords as words of subwords."""
        return super().enter(x, valid) if self.subwords is None else self.subwords.enter(x, valid)

    def tags(self, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the best tags (B, T), 0 at padding, and the log probability of each row's (B,)."""
        return best_tags(self(x, valid=valid)[0], valid, self.crf)

    def tag_loss(self, x: Tensor, tags: Tensor, valid: Tensor | None, known: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return −log p of the known tags, summed: (); other steps may have any tag."""
        scores = self(x, valid=valid)[0]
        scores = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        if self.crf is not None:
            return -self.crf.log_probability(scores, tags, valid, known).sum()
        every = tags.masked_fill(~known, -100)
        return torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), every.flatten(), ignore_index=-100, reduction="sum", label_smoothing=smoothing
        )


def best_tags(scores: Tensor, valid: Tensor | None, crf: CRF | None = None) -> tuple[Tensor, Tensor]:
    """Return the most probable tags of scores (B, T, C), 0 at padding, and the log probability of each row's."""
    if crf is not None:
        return crf.decode(scores, valid)
    logprob, tags = scores.log_softmax(-1).max(-1)
    return fill_invalid(tags, valid), fill_invalid(logprob, valid).sum(1)
