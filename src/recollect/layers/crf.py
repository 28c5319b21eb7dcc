"""The linear-chain conditional random field: tags that are chosen together, not one by one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from recollect.core.validate import may_look_at


class CRF(nn.Module):
    """A distribution over whole tag sequences (Lafferty et al. 2001).

    p(y | e) = exp(s(y)) / Z,  s(y) = a_{y_1} + Σ_t e_{t, y_t} + Σ_t A_{y_{t−1}, y_t} + b_{y_T}

    e (B, T, K) are a model's scores of every tag at every step. Z sums over all K^T sequences by the forward algorithm
    in O(T K²). A row without valid steps has the one empty sequence, of probability 1.

    >>> crf = rc.CRF(3)
    >>> scores = torch.randn(2, 5, 3)
    >>> best, logprob = crf.decode(scores)
    >>> best.shape, bool((logprob <= 0).all())
    (torch.Size([2, 5]), True)
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.tags = tags
        self.start = nn.Parameter(torch.zeros(tags))  # a
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # A: from the row's tag to the column's
        self.end = nn.Parameter(torch.zeros(tags))  # b

    def log_partition(self, scores: Tensor, valid: Tensor | None = None, allowed: Tensor | None = None) -> Tensor:
        """Return log Z (B,); with `allowed` (B, T, K) the sum is over sequences of allowed tags only."""
        if scores.shape[1] == 0:
            return scores.new_zeros(len(scores))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        reached = self.start + scores[:, 0]  # (B, K)
        move = self._move(scores)
        for t in range(1, scores.shape[1]):
            after = move(reached) + scores[:, t]
            reached = after if valid is None else torch.where(valid[:, t, None], after, reached)
        total = (reached + self.end).logsumexp(1)
        return total if valid is None else torch.where(valid.any(1), total, 0.0)

    def _move(self, scores: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of log α (B, K) to log Σ_i exp(log α_i + A_ij) (B, K): on a CPU as a matrix product.

        exp(A − its columns' maxima) is computed once. The sum is then at least exp(−spread) of the largest term of α,
        so that nothing that matters is rounded to 0 while the spread of a column is below log(eps / tiny).
        """
        number = torch.finfo(scores.dtype)
        if may_look_at(scores) and number.bits >= 32:
            top = self.transitions.detach().amax(0)  # (K,)
            spread = float((top - self.transitions.detach().amin(0)).max())
            if spread < math.log(number.eps / number.tiny):
                return _by_products((self.transitions - top).exp(), top)
        return lambda reached: (reached[:, :, None] + self.transitions).logsumexp(1)

    def score(self, scores: Tensor, tags: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return s(y) (B,) of tag sequences (B, T)."""
        if scores.shape[1] == 0:
            return scores.new_zeros(len(scores))
        real = torch.ones_like(tags, dtype=torch.bool) if valid is None else valid
        tags = tags.masked_fill(~real, 0)
        emitted = scores.gather(2, tags[..., None])[..., 0].masked_fill(~real, 0).sum(1)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~real[:, 1:], 0).sum(1)
        last = tags.gather(1, (real.sum(1, keepdim=True) - 1).clamp(min=0))[:, 0]
        return torch.where(real.any(1), emitted + moved + self.start[tags[:, 0]] + self.end[last], 0.0)

    def log_probability(
        self, scores: Tensor, tags: Tensor, valid: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        """Return log p(y | e) (B,); where `known` (B, T) is False any tag counts: log of the sum over all of them."""
        if known is None:
            return self.score(scores, tags, valid) - self.log_partition(scores, valid)
        fixed = known if valid is None else known | ~valid
        if may_look_at(fixed) and bool(fixed.all()):  # one sum over sequences, not two
            return self.log_probability(scores, tags, valid)
        every = torch.arange(self.tags, device=tags.device)
        allowed = (tags[..., None] == every) | ~known[..., None]  # (B, T, K)
        return self.log_partition(scores, valid, allowed) - self.log_partition(scores, valid)

    def marginals(self, scores: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return p(y_t = k | e) (B, T, K): the gradient of log Z (Eisner 2016); zero at padding."""
        with torch.enable_grad():
            given = scores.detach().requires_grad_()
            total = self.log_partition(given, valid).sum()
            return torch.autograd.grad(total, given)[0] if scores.shape[1] else torch.zeros_like(scores)

    @torch.no_grad()
    def decode(self, scores: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the most probable tags (B, T), 0 at padding, and their log probability (B,) (Viterbi 1967)."""
        rows, steps, _ = scores.shape
        if steps == 0:
            return torch.zeros(rows, 0, dtype=torch.long, device=scores.device), scores.new_zeros(rows)
        real = torch.ones(rows, steps, dtype=torch.bool, device=scores.device) if valid is None else valid
        best = self.start + scores[:, 0]  # (B, K)
        origins = []
        for t in range(1, steps):
            reached, origin = (best[:, :, None] + self.transitions).max(1)
            best = torch.where(real[:, t, None], reached + scores[:, t], best)
            origins.append(origin)
        found = [(best + self.end).argmax(1)]  # of each row's last step, at first
        for t in range(steps - 1, 0, -1):
            earlier = origins[t - 1].gather(1, found[-1][:, None])[:, 0]
            found.append(torch.where(real[:, t], earlier, found[-1]))
        tags = torch.stack(found[::-1], dim=1).masked_fill(~real, 0)
        return tags, self.log_probability(scores, tags, valid)


def _by_products(factors: Tensor, top: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the map of log α to log(α · factors) + top, with α scaled to a largest value of 1."""

    def move(reached: Tensor) -> Tensor:
        largest = reached.detach().amax(1, keepdim=True)
        with torch.autocast(reached.device.type, enabled=False):
            total = (reached - largest).exp() @ factors
        return total.log() + largest + top

    return move
