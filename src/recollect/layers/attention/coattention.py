"""Co-attention: two sequences, each attended to with queries from the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.core.validate import check_input, check_valid, fill_invalid
from recollect.layers.attention.alignment import Soft
from recollect.layers.attention.attend import Attend, home_of
from recollect.layers.attention.score import Additive, BiasedGeneral


class ParallelCoAttention(nn.Module):
    """Fine-grained co-attention through an affinity matrix of all pairs of steps (Lu et al. 2016).

    C = tanh(Y W_b Xᵀ);  H_x = tanh(X W_x + Cᵀ (Y W_y));  H_y = tanh(Y W_y + C (X W_x))
    a_x = softmax(H_x w_x), a_y = softmax(H_y w_y);  c_x = Σ a_x x, c_y = Σ a_y y

    >>> attend = rc.ParallelCoAttention(4, 6)
    >>> x, y = attend(torch.randn(2, 5, 4), torch.randn(2, 7, 6))
    >>> tuple(x.shape), tuple(y.shape)
    ((2, 4), (2, 6))
    """

    def __init__(
        self, x_width: int, y_width: int, *, hidden: int | None = None, **factory: Unpack[TensorOptions]
    ) -> None:
        super().__init__()
        self.x_width, self.y_width = x_width, y_width
        hidden = hidden or x_width
        self.affinity = nn.Linear(y_width, x_width, bias=False, **factory)
        # Without biases the invalid steps stay zero and add nothing to the other side.
        self.x_hidden = nn.Linear(x_width, hidden, bias=False, **factory)
        self.y_hidden = nn.Linear(y_width, hidden, bias=False, **factory)
        self.x_score, self.y_score = (nn.Linear(hidden, 1, bias=False, **factory) for _ in range(2))
        self.align = Soft()

    def forward(
        self, x: Tensor, y: Tensor, x_valid: Tensor | None = None, y_valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return one context of each: (B, D_x) and (B, D_y), from (B, S_x, D_x) and (B, S_y, D_y)."""
        x, y = _filled(self, x, self.x_width, x_valid), _filled(self, y, self.y_width, y_valid)
        affinity = torch.tanh(self.affinity(y) @ x.transpose(1, 2))  # (B, S_y, S_x)
        x_hidden, y_hidden = self.x_hidden(x), self.y_hidden(y)
        x_scores = self.x_score(torch.tanh(x_hidden + affinity.transpose(1, 2) @ y_hidden)).transpose(1, 2)
        y_scores = self.y_score(torch.tanh(y_hidden + affinity @ x_hidden)).transpose(1, 2)  # (B, 1, S_y)
        x_weights, y_weights = self.align(x_scores, x_valid, x), self.align(y_scores, y_valid, y)
        note(self, None, affinity=affinity, x_weights=x_weights, y_weights=y_weights)
        return (x_weights @ x).squeeze(1), (y_weights @ y).squeeze(1)


class AlternatingCoAttention(nn.Module):
    """Coarse-grained co-attention: the context of one is the query to the other (Lu et al. 2016, section 3.3).

    s = attend(0, x);  c_y = attend(s, y);  c_x = attend(c_y, x),  each with the additive score

    >>> attend = rc.AlternatingCoAttention(4, 6)
    >>> x, y = attend(torch.randn(2, 5, 4), torch.randn(2, 7, 6))
    >>> tuple(x.shape), tuple(y.shape)
    ((2, 4), (2, 6))
    """

    def __init__(
        self, x_width: int, y_width: int, *, hidden: int | None = None, **factory: Unpack[TensorOptions]
    ) -> None:
        super().__init__()
        self.first = Attend(Additive(x_width, x_width, hidden=hidden, **factory))
        self.to_y = Attend(Additive(x_width, y_width, hidden=hidden, **factory))
        self.to_x = Attend(Additive(y_width, x_width, hidden=hidden, **factory))

    def forward(
        self, x: Tensor, y: Tensor, x_valid: Tensor | None = None, y_valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return one context of each: (B, D_x) and (B, D_y), from (B, S_x, D_x) and (B, S_y, D_y)."""
        nothing = x.new_zeros(len(x), 1, self.first.query_width)
        summary = self.first(nothing, self.first.remember(x, x_valid))
        y_context = self.to_y(summary, self.to_y.remember(y, y_valid))
        x_context = self.to_x(y_context, self.to_x.remember(x, x_valid))
        return x_context.squeeze(1), y_context.squeeze(1)


class InteractiveCoAttention(nn.Module):
    """Coarse-grained co-attention: the mean of each is the query to the other (Ma et al. 2017, "IAN").

    Where we differ: the paper applies tanh to the scores.

    >>> attend = rc.InteractiveCoAttention(4, 6)
    >>> x, y = attend(torch.randn(2, 5, 4), torch.randn(2, 7, 6))
    >>> tuple(x.shape), tuple(y.shape)
    ((2, 4), (2, 6))
    """

    def __init__(self, x_width: int, y_width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.to_x = Attend(BiasedGeneral(y_width, x_width, **factory))
        self.to_y = Attend(BiasedGeneral(x_width, y_width, **factory))

    def forward(
        self, x: Tensor, y: Tensor, x_valid: Tensor | None = None, y_valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return one context of each: (B, D_x) and (B, D_y), from (B, S_x, D_x) and (B, S_y, D_y)."""
        x_context = self.to_x(mean_of(y, y_valid), self.to_x.remember(x, x_valid))
        y_context = self.to_y(mean_of(x, x_valid), self.to_y.remember(y, y_valid))
        return x_context.squeeze(1), y_context.squeeze(1)


class MultiGrainedCoAttention(nn.Module):
    """Coarse and fine co-attention side by side (Fan et al. 2018, "MGAN").

    coarse:  `InteractiveCoAttention`: the mean of each is the query to the other
    fine:    u_st = wᵀ [x_s; y_t; x_s ⊙ y_t];  a_x = softmax_s(max_t u_st), c_x = Σ_s a_x x_s
             a_y = softmax_t(u_st) for every s, c_y = mean_s Σ_t a_y y_t

    With a y of one step, w = [0; 0; 1] and the coarse scores' W = I, b = 0, either grain is attention with the dot
    product and the query y. Where we differ: the paper weights the steps of x by their distance to the phrase y.

    >>> attend = rc.MultiGrainedCoAttention(4)
    >>> x, y = attend(torch.randn(2, 5, 4), torch.randn(2, 7, 4))
    >>> tuple(x.shape), tuple(y.shape)
    ((2, 8), (2, 8))
    """

    def __init__(self, width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width = width
        self.width_out = 2 * width
        self.coarse = InteractiveCoAttention(width, width, **factory)
        self.fine = nn.Linear(3 * width, 1, bias=False, **factory)
        self.align = Soft()

    def forward(
        self, x: Tensor, y: Tensor, x_valid: Tensor | None = None, y_valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return [coarse; fine] of each, (B, 2 D) and (B, 2 D), from (B, S_x, D) and (B, S_y, D)."""
        x, y = _filled(self, x, self.width, x_valid), _filled(self, y, self.width, y_valid)
        coarse_x, coarse_y = self.coarse(x, y, x_valid, y_valid)
        scores = self._scores(x, y)  # (B, S_x, S_y)
        x_weights = self.align(_largest(scores, y_valid)[:, None], x_valid, x)  # (B, 1, S_x)
        y_weights = self.align(scores, y_valid, x)
        note(self, None, affinity=scores, x_weights=x_weights, y_weights=y_weights)
        fine_x, fine_y = (x_weights @ x).squeeze(1), mean_of(y_weights @ y, x_valid).squeeze(1)
        return torch.cat([coarse_x, fine_x], dim=1), torch.cat([coarse_y, fine_y], dim=1)

    def _scores(self, x: Tensor, y: Tensor) -> Tensor:
        of_x, of_y, of_both = self.fine.weight[0].tensor_split(3)  # (D,) each
        return (x @ of_x)[:, :, None] + (y @ of_y)[:, None] + (x * of_both) @ y.transpose(1, 2)


class RotatoryAttention(nn.Module):
    """Attention between a target phrase and its left and right context, in both directions (Zheng & Xia 2018, LCR-Rot).

    l = attend(mean target, left), r = attend(mean target, right);  t_l = attend(l, target), t_r = attend(r, target)

    >>> attend = rc.RotatoryAttention(4)
    >>> target, left, right = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 6, 4)
    >>> attend(target, left, right).shape
    torch.Size([2, 16])
    """

    def __init__(self, width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width = width
        self.width_out = 4 * width
        self.left, self.right, self.from_left, self.from_right = (
            Attend(BiasedGeneral(width, width, **factory)) for _ in range(4)
        )

    def forward(
        self,
        left: Tensor,
        target: Tensor,
        right: Tensor,
        left_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
        right_valid: Tensor | None = None,
    ) -> Tensor:
        """Return [l; t_l; t_r; r], (B, 4 D)."""
        asked = mean_of(target, target_valid)
        seen_left = self.left(asked, self.left.remember(left, left_valid))
        seen_right = self.right(asked, self.right.remember(right, right_valid))
        target_left = self.from_left(seen_left, self.from_left.remember(target, target_valid))
        target_right = self.from_right(seen_right, self.from_right.remember(target, target_valid))
        return torch.cat([seen_left, target_left, target_right, seen_right], dim=2).squeeze(1)


def mean_of(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of the valid steps, (B, 1, D); zeros where a row is empty."""
    if valid is None:
        valid = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return fill_invalid(x, valid).sum(1, keepdim=True) / valid.sum(1).clamp(min=1)[:, None, None]


def _largest(scores: Tensor, valid: Tensor | None) -> Tensor:
    """Return the largest score over the valid steps of axis 2, (B, S_x); zeros where a row has none."""
    if valid is None:
        valid = torch.ones(len(scores), scores.shape[2], dtype=torch.bool, device=scores.device)
    if scores.shape[2] == 0:
        return scores.sum(2)
    only = scores.masked_fill(~valid[:, None], -torch.inf).amax(2)
    return torch.where(valid.any(1)[:, None], only, 0)


def _filled(module: nn.Module, x: Tensor, width: int, valid: Tensor | None) -> Tensor:
    check_input(x, width, *home_of(module))
    if valid is not None:
        check_valid(valid, x)
    return fill_invalid(x, valid)
