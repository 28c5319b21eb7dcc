"""Several attentions in parallel (heads) or in sequence (hops)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.core.validate import check_input, check_valid, fill_invalid
from recollect.layers.attention.attend import Attend, home_of
from recollect.layers.attention.cross_attention import Source


class MultiHop(nn.Module):
    """Attention repeated with a query updated by each context (Sukhbaatar et al. 2015, section 2.2, layer-wise tying).

    q⁰ = q;  cˢ = attend(qˢ);  qˢ⁺¹ = H qˢ + W cˢ;  the result is the context of the last hop

    All hops share the attention, the source, H and W. One hop equals the attention alone.

    >>> attend = rc.MultiHop(rc.Attend(rc.Dot(4, 4)), hops=3)
    >>> attend(torch.randn(2, 3, 4), attend.remember(torch.randn(2, 5, 4))).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, attend: Attend, hops: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        if hops < 1:
            raise ValueError(f"hops: got {hops}, expected at least 1")
        self.attend = attend
        self.hops = hops
        self.query_width = attend.query_width
        self.source_width = attend.source_width
        self.width_out = attend.width_out
        self.again = nn.Linear(attend.query_width, attend.query_width, bias=False, **factory)
        self.seen = nn.Linear(attend.width_out, attend.query_width, bias=False, **factory)

    def remember(self, features: Tensor, valid: Tensor | None = None) -> Source:
        """Return the memory that all hops attend to."""
        return self.attend.remember(features, valid)

    def forward(self, q: Tensor, source: Source, place: Tensor | None = None) -> Tensor:
        """Return the last hop's contexts (B, T, V)."""
        context = self.attend(q, source, place)
        for _ in range(self.hops - 1):
            q = self.again(q) + self.seen(context)
            context = self.attend(q, source, place)
        return context


class MultiHead(nn.Module):
    """Several attentions in parallel, each on its own part of the width (Vaswani et al. 2017, section 3.2.2).

    q = W_q x;  k = W_k s, v = W_v s for the source's features s;  c_n = head_n(q_n, k_n, v_n);  y = W_o [c_1; …; c_N]

    `heads` are attentions of any score and alignment, each of width / N, so that heads may differ in kind as long as
    their keys have equal widths. One head equals the attention alone between the projections.

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
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if not heads or width % len(heads):
            raise ValueError(f"heads: got {len(heads)}, expected a number that divides the width {width}")
        self.query_width = self.width_out = width
        self.source_width = source_width or width
        self.head_width = width // len(heads)
        for n, head in enumerate(heads):
            got = (head.query_width, head.source_width, head.width_out, head.score.width)
            expected = (self.head_width, self.head_width, self.head_width, heads[0].score.width)
            if got != expected or head.value is not None:
                raise ValueError(
                    f"heads[{n}]: got widths {got} of queries, features, values and keys, expected {expected}, "
                    "and no value_width: MultiHead has the projections"
                )
        self.heads = nn.ModuleList(heads)
        self.query = nn.Linear(width, width, bias=bias, **factory)
        self.key_value = nn.Linear(self.source_width, 2 * width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def remember(self, features: Tensor, valid: Tensor | None = None) -> Source:
        """Return the memory of a source's features (B, S, D): keys (B, S, N, K), values (B, S, N, H)."""
        check_input(features, self.source_width, *home_of(self))
        if valid is None:
            valid = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        check_valid(valid, features)
        both = self.key_value(fill_invalid(features, valid)).unflatten(2, (2, len(self.heads), self.head_width))
        keys, values = fill_invalid(both, valid).unbind(2)  # (B, S, N, H) each
        scored = [head.score.keys(k) for head, k in zip(self._attends(), keys.unbind(2), strict=True)]
        return Source(keys=fill_invalid(torch.stack(scored, 2), valid), values=values.contiguous(), valid=valid)

    def forward(self, q: Tensor, source: Source, place: Tensor | None = None) -> Tensor:
        """Attend with every head, and concatenate the contexts."""
        queries = self.query(q).unflatten(2, (len(self.heads), self.head_width))  # (B, T, N, H)
        looks = []
        for n, head in enumerate(self._attends()):
            one = slice(n, n + 1)
            part = Source(keys=source.keys[:, :, one], values=source.values[:, :, one], valid=source.valid)
            looks.append(head.look(queries[:, :, n], part, place))
        scores, weights = (torch.stack([getattr(one, name) for one in looks], 1) for name in ("scores", "weights"))
        context = torch.stack([one.context for one in looks], 2)  # (B, T, N, H)
        note(self, 2, scores=scores, weights=weights)
        note(self, context=context)
        return self.out(context.flatten(2))

    def _attends(self) -> list[Attend]:
        return [head for head in self.heads if isinstance(head, Attend)]
