"""More than one look: several heads side by side, several hops one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.record import note
from recollect.core.validate import check_input, check_valid, fill_invalid
from recollect.layers.attention.attend import Attend, home_of
from recollect.layers.attention.cross_attention import Source


class MultiHop(nn.Module):
    """Ask, look, and ask again with what was seen (Sukhbaatar et al. 2015, section 2.2, layer-wise tying).

    q⁰ = q;  cˢ = attend(qˢ);  qˢ⁺¹ = H qˢ + W cˢ;  the context of the last hop comes back

    All hops share the attention and the source, H and W. One hop is the attention alone.

    >>> attend = rc.MultiHop(rc.Attend(rc.Dot(4, 4)), hops=3)
    >>> attend(torch.randn(2, 3, 4), attend.remember(torch.randn(2, 5, 4))).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, attend: Attend, hops: int, **factory: Any) -> None:
        super().__init__()
        if hops < 1:
            raise ValueError(f"hops: got {hops}, expected at least 1")
        self.attend, self.hops = attend, hops
        self.query_width, self.source_width, self.width_out = attend.query_width, attend.source_width, attend.width_out
        self.again = nn.Linear(attend.query_width, attend.query_width, bias=False, **factory)
        self.seen = nn.Linear(attend.width_out, attend.query_width, bias=False, **factory)

    def remember(self, features: Tensor, valid: Tensor | None = None) -> Source:
        """Write the memory that all hops look at."""
        return self.attend.remember(features, valid)

    def forward(self, q: Tensor, source: Source, place: Tensor | None = None) -> Tensor:
        """Give the last hop's contexts (B, T, V)."""
        context = self.attend(q, source, place)
        for _ in range(self.hops - 1):
            q = self.again(q) + self.seen(context)
            context = self.attend(q, source, place)
        return context


class MultiHead(nn.Module):
    """Several attentions side by side, each in its own part of the width (Vaswani et al. 2017, section 3.2.2).

    q = W_q x;  k = W_k s, v = W_v s for the source's features s;  c_n = head_n(q_n, k_n, v_n);  y = W_o [c_1; …; c_N]

    `heads` are attentions of any score and alignment, each width / N wide, so that heads may differ in kind as long as
    they remember equally much. One head is the attention alone between the projections.

    >>> attend = rc.MultiHead(8, [rc.Attend(rc.Additive(4, 4)), rc.Attend(rc.Additive(4, 4))])
    >>> attend(torch.randn(2, 3, 8), attend.remember(torch.randn(2, 5, 8))).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: Sequence[Attend],
        *,
        source_width: int | None = None,
        bias: bool = True,
        **factory: Any,
    ) -> None:
        super().__init__()
        if not heads or width % len(heads):
            raise ValueError(f"heads: got {len(heads)}, expected a number that divides the width {width}")
        self.query_width = self.width_out = width
        self.source_width, self.head_width = source_width or width, width // len(heads)
        _check_heads(heads, self.head_width)
        self.heads = nn.ModuleList(heads)
        self.query = nn.Linear(width, width, bias=bias, **factory)
        self.key_value = nn.Linear(self.source_width, 2 * width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def remember(self, features: Tensor, valid: Tensor | None = None) -> Source:
        """Write the memory from a source's features (B, S, D): keys (B, S, N, K), values (B, S, N, H)."""
        check_input(features, self.source_width, *home_of(self))
        if valid is None:
            valid = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        check_valid(valid, features)
        both = self.key_value(fill_invalid(features, valid)).unflatten(2, (2, len(self.heads), self.head_width))
        keys, values = fill_invalid(both, valid).unbind(2)  # (B, S, N, H) each
        scored = [head.score.keys(k) for head, k in zip(self._attends(), keys.unbind(2), strict=True)]
        return Source(keys=fill_invalid(torch.stack(scored, 2), valid), values=values.contiguous(), valid=valid)

    def forward(self, q: Tensor, source: Source, place: Tensor | None = None) -> Tensor:
        """Look with every head, and join what they saw."""
        queries = self.query(q).unflatten(2, (len(self.heads), self.head_width))  # (B, T, N, H)
        looks = [head.look(queries[:, :, n], _part(source, n), place) for n, head in enumerate(self._attends())]
        scores, weights = (torch.stack([getattr(one, name) for one in looks], 1) for name in ("scores", "weights"))
        context = torch.stack([one.context for one in looks], 2)  # (B, T, N, H)
        note(self, 2, scores=scores, weights=weights)
        note(self, context=context)
        return self.out(context.flatten(2))

    def _attends(self) -> list[Attend]:
        return [head for head in self.heads if isinstance(head, Attend)]


def _part(source: Source, n: int) -> Source:
    """One head's share of a source."""
    return Source(keys=source.keys[:, :, n : n + 1], values=source.values[:, :, n : n + 1], valid=source.valid)


def _check_heads(heads: Sequence[Attend], width: int) -> None:
    for n, head in enumerate(heads):
        seen = (head.query_width, head.source_width, head.width_out, head.score.width)
        wanted = (width, width, width, heads[0].score.width)
        if seen != wanted or head.value is not None:
            raise ValueError(
                f"heads[{n}]: got widths {seen} of queries, features, values and keys, expected {wanted}, "
                "and no value_width: the projections stand around the heads"
            )
