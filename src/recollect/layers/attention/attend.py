"""Attention composed of a score and an alignment: F → K, V;  e = score(q, K);  a = align(e);  c = a V."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.core.validate import ContractError, check_input, check_memory, check_valid, fill_invalid
from recollect.layers.attention.alignment import Alignment, Soft
from recollect.layers.attention.cross_attention import Source
from recollect.layers.attention.score import Score


class Looked(NamedTuple):
    """The results of attending to a source."""

    scores: Tensor  # (B, T, S), or (B, T, S, V) with a score for each feature
    weights: Tensor  # the same shape
    context: Tensor  # (B, T, V)
    log_probability: Tensor  # (B, T): of what the alignment sampled, for `score_function_loss`; else 0


class Attend(nn.Module):
    """Attention from queries to a source, of any score and any alignment (soft unless given).

    e_ts = score(q_t, k_s);  a_t = align(e_t);  c_t = Σ_s a_ts v_s

    `source = attend.remember(features, valid)` is computed once; `attend(q, source)` returns the contexts. The values
    are the features themselves, or with `value_width` W_v times them. A row whose source is empty gets zeros.

    >>> attend = rc.Attend(rc.Dot(4, 4))
    >>> source = attend.remember(torch.randn(2, 5, 4))
    >>> attend(torch.randn(2, 3, 4), source).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        score: Score,
        alignment: Alignment | None = None,
        *,
        value_width: int | None = None,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        self.score = score
        self.alignment = alignment or Soft()
        self.query_width = score.query_width
        self.source_width = score.key_width
        self.width_out = value_width or score.key_width
        self.value = None if value_width is None else nn.Linear(score.key_width, value_width, bias=False, **factory)
        if score.features not in (None, self.width_out):
            raise ContractError("score", f"{score.features} features", f"{self.width_out}, one for each of the values'")

    def remember(self, features: Tensor, valid: Tensor | None = None) -> Source:
        """Return the memory of a source's features (B, S, D)."""
        check_input(features, self.source_width, *home_of(self))
        if valid is None:
            valid = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        check_valid(valid, features)
        features = fill_invalid(features, valid)
        keys = fill_invalid(self.score.keys(features), valid)
        values = features if self.value is None else self.value(features)
        return Source(keys=keys[:, :, None], values=values[:, :, None], valid=valid)

    def look(self, q: Tensor, source: Source, place: Tensor | None = None) -> Looked:
        """Attend to the source with queries (B, T, D_q); place (B,): how many queries came before these."""
        if q.dim() != 3 or q.shape[2] != self.query_width:
            raise ContractError("q", f"shape {tuple(q.shape)}", f"(B, T, {self.query_width}): the score's query_width")
        keys, values = (q.new_zeros(0, 0, 1, width) for width in (self.score.width, self.width_out))
        check_memory(source, Source(keys=keys, values=values, valid=keys.new_zeros(0, 0, dtype=torch.bool)), len(q))
        scores = self.score(q, source.keys.squeeze(2))
        weights, log_probability = self.alignment.align(scores, source.valid, q, place)
        mix = "bts,bsv->btv" if self.score.features is None else "btsv,bsv->btv"
        context = torch.einsum(mix, weights, source.values.squeeze(2))
        note(self, scores=scores, weights=weights, context=context)
        return Looked(scores, weights, context, log_probability)

    def forward(self, q: Tensor, source: Source, place: Tensor | None = None) -> Tensor:
        """Return the contexts (B, T, V)."""
        return self.look(q, source, place).context


def home_of(module: nn.Module) -> tuple[torch.dtype | None, torch.device | None]:
    """Return dtype and device of a module's parameters; None where it has none."""
    first = next(module.parameters(), None)
    return (None, None) if first is None else (first.dtype, first.device)
