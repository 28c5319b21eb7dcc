"""From scores to weights: which steps of a source a query attends to, and how much to each.

An alignment maps scores (B, T, S), or (B, T, S, F) with one for every feature, to weights of the same shape.
Weights are zero where a source is not valid; a query whose source is empty gets zeros only.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.errors import check_choice
from recollect.core.record import note
from recollect.core.types import TensorOptions


class Alignment(nn.Module):
    """Turns scores into weights. A subclass defines one method, `align`.

    >>> isinstance(rc.Soft(), rc.Alignment)
    True
    """

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the weights, and the log-probability (B, T) of what was sampled to compute them.

        It is 0 where nothing was sampled, or where the gradient of the sample flows through the weights themselves.
        """
        raise NotImplementedError

    def forward(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None = None) -> Tensor:
        """Return the weights.

        valid (B, S): the source's real steps, None: all. q (B, T, D): the queries. place (B,): how many target steps
        were read before these, None: none.
        """
        return self.align(scores, valid, q, place)[0]


class Soft(Alignment):
    """a = softmax(e) over the valid steps: every step has a positive weight (Bahdanau et al. 2015).

    >>> rc.Soft()(torch.zeros(1, 1, 4), None, torch.zeros(1, 1, 8)).tolist()
    [[[0.25, 0.25, 0.25, 0.25]]]
    """

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the softmax."""
        return softmax_over(scores, _all_of(scores, valid)), certain(scores)


class Hard(Alignment):
    """A single step, m ~ softmax(e / τ), a_m = 1 (Xu et al. 2015, section 4.1); in eval mode the likeliest, argmax e.

    Sampling has no derivative. `estimator` is the gradient used in training: "score-function" returns log p(m), which
    the model multiplies with its loss (`score_function_loss`): unbiased, of high variance. "straight-through" passes
    the gradient on as if the weights were softmax(e / τ + Gumbel noise) (Jang et al. 2017): biased, of low variance.

    >>> align = rc.Hard().eval()
    >>> align(torch.tensor([[[0.1, 0.9, 0.3]]]), None, torch.zeros(1, 1, 8)).tolist()
    [[[0.0, 1.0, 0.0]]]
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        estimator: Literal["score-function", "straight-through"] = "score-function",
    ) -> None:
        super().__init__()
        check_choice("estimator", estimator, ("score-function", "straight-through"))
        if temperature <= 0:
            raise ValueError(f"temperature: got {temperature}, expected a number above 0")
        self.temperature = temperature
        self.estimator = estimator

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Sample one step: the largest of scores plus Gumbel noise."""
        allowed = _all_of(scores, valid)
        if not self.training:
            return highest(scores, allowed), certain(scores)
        noisy = scores / self.temperature + gumbel_like(scores)
        drawn = highest(noisy, allowed)
        if self.estimator == "score-function":
            return drawn, self.log_probability(scores, drawn, valid)
        soft = softmax_over(noisy, allowed)
        return drawn + (soft - soft.detach()), certain(scores)

    def log_probability(self, scores: Tensor, drawn: Tensor, valid: Tensor | None) -> Tensor:
        """Return log p(m), (B, T), of sampled weights."""
        only, _ = _only(scores / self.temperature, _all_of(scores, valid))
        log_weights = only.log_softmax(dim=2)
        return torch.where(drawn > 0, log_weights, 0).flatten(2).sum(2)


class LocalMonotonic(Alignment):
    """Softmax over the window p ± D around p = t (Luong et al. 2015, section 3.2, local-m).

    t counts target steps from 0, across calls by means of `place`. Beyond a source's end p is its last step.

    >>> align = rc.LocalMonotonic(window=1)
    >>> align(torch.zeros(1, 1, 4), None, torch.zeros(1, 1, 8)).tolist()  # the window 0 ± 1
    [[[0.5, 0.5, 0.0, 0.0]]]
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = _checked_window(window)

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the softmax over the window."""
        t = torch.arange(scores.shape[1], device=scores.device)
        center = (t if place is None else place[:, None] + t).expand(len(scores), -1)  # (B, T)
        center = torch.minimum(center, (_lengths(scores, valid) - 1)[:, None])
        return softmax_over(scores, _near(scores, valid, center, self.window)), certain(scores)


class LocalPredictive(Alignment):
    """Softmax over the window p ± D, times a Gaussian around p (Luong et al. 2015, section 3.2, local-p).

    p = S · σ(wᵀ tanh(W_p q));  a_s = softmax(e)_s · exp(−(s − p)² / (2 σ²)),  σ = D / 2

    S is each row's own length. As in the paper the weights are not normalised again: they sum to less than 1.

    >>> align = rc.LocalPredictive(query_width=8, window=2)
    >>> weights = align(torch.zeros(1, 3, 9), None, torch.randn(1, 3, 8))
    >>> tuple(weights.shape), bool((weights.sum(2) < 1).all())
    ((1, 3, 9), True)
    """

    def __init__(
        self, query_width: int, window: int, *, hidden: int | None = None, **factory: Unpack[TensorOptions]
    ) -> None:
        super().__init__()
        self.window = _checked_window(window)
        self.hidden = nn.Linear(query_width, hidden or query_width, bias=False, **factory)
        self.out = nn.Linear(hidden or query_width, 1, bias=False, **factory)

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the softmax over the window, times a Gaussian around the position that the query predicts."""
        share = torch.sigmoid(self.out(torch.tanh(self.hidden(q)))).squeeze(2)  # (B, T)
        center = share * _lengths(scores, valid)[:, None]
        note(self, center=center)
        away = torch.arange(scores.shape[2], device=scores.device) - center[:, :, None]  # (B, T, S)
        bell = _like_scores(torch.exp(-2 * (away / self.window).square()), scores)  # 2 σ² = D² / 2
        return softmax_over(scores, _near(scores, valid, center, self.window)) * bell, certain(scores)


class Reinforced(Alignment):
    """A policy samples a subset of the steps, bit by bit, then softmax over it (after Shen et al. 2018, "ReSAN").

    z_s ~ Bernoulli(σ(g e_s + h));  a = softmax(e) over the steps with z_s = 1

    In eval mode a bit is its likelier value. An empty subset gets zeros only. The softmax is differentiated as usual,
    the bits through log p(z), which the model multiplies with its loss (`score_function_loss`). Differs from the
    paper: there the policy is a network of its own over the features, here it reads the scores.

    >>> align = rc.Reinforced().eval()
    >>> align(torch.tensor([[[0.0, 0.0, -9.0]]]), None, torch.zeros(1, 1, 8)).tolist()  # the third bit is 0
    [[[0.5, 0.5, 0.0]]]
    """

    def __init__(self, *, offset: float = 2.0, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones((), **factory))
        self.offset = nn.Parameter(torch.tensor(offset, **factory))

    def align(self, scores: Tensor, valid: Tensor | None, q: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
        """Sample the bits, and return the softmax over those that are set."""
        real = _all_of(scores, valid)
        logits = self._logits(scores, real)
        picked = real & (torch.rand_like(logits) < logits.sigmoid() if self.training else logits > 0)
        note(self, picked=picked)
        drawn = self.log_probability(scores, picked, valid) if self.training else certain(scores)
        return softmax_over(scores, picked), drawn

    def log_probability(self, scores: Tensor, picked: Tensor, valid: Tensor | None) -> Tensor:
        """Return log p(z), (B, T), of sampled bits: Σ_s log σ(±(g e_s + h))."""
        real = _all_of(scores, valid)
        logits = self._logits(scores, real)
        each = F.logsigmoid(torch.where(picked, logits, -logits))
        return each.masked_fill(~real, 0).flatten(2).sum(2)

    def _logits(self, scores: Tensor, real: Tensor) -> Tensor:
        return self.slope * scores.masked_fill(~real, 0) + self.offset


ALIGNMENTS: dict[str, type[Alignment]] = {
    "soft": Soft,
    "hard": Hard,
    "local-monotonic": LocalMonotonic,
    "local-predictive": LocalPredictive,
    "reinforced": Reinforced,
}


def make_alignment(name: str, **options: Any) -> Alignment:
    """Return an alignment by its name, with its class's options.

    >>> align = rc.make_alignment("local-monotonic", window=1)
    >>> align(torch.zeros(1, 2, 4), None, torch.zeros(1, 2, 8)).tolist()
    [[[0.5, 0.5, 0.0, 0.0], [0.3333333432674408, 0.3333333432674408, 0.3333333432674408, 0.0]]]
    """
    check_choice("alignment", name, tuple(ALIGNMENTS))
    return ALIGNMENTS[name](**options)


def score_function_loss(log_probability: Tensor, loss: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """Return (L − b) · log p(sample), elementwise: a term to add to a loss L that depends on a sample.

    The expectation of its gradient is ∇ E[L] through the sampling (Williams 1992, REINFORCE), for any baseline b that
    does not depend on the sample; a b near E[L] lowers the variance.

    >>> log_p = torch.tensor([-0.5], requires_grad=True)
    >>> rc.score_function_loss(log_p, loss=torch.tensor([3.0]), baseline=1.0).tolist()
    [-1.0]
    """
    return (loss - baseline).detach() * log_probability


def softmax_over(scores: Tensor, allowed: Tensor) -> Tensor:
    """Return the softmax over the source steps (axis 2) that are allowed; zeros where none is."""
    only, nothing = _only(scores, allowed)
    return only.softmax(dim=2).masked_fill(nothing, 0)


def highest(scores: Tensor, allowed: Tensor) -> Tensor:
    """Return 1 at the allowed source step of the highest score (the first of equals), 0 elsewhere; no gradient."""
    if scores.shape[2] == 0:
        return torch.zeros_like(scores)
    best = scores.detach().masked_fill(~allowed, -torch.inf).argmax(dim=2, keepdim=True)
    return torch.zeros_like(scores).scatter(2, best, 1.0).masked_fill(~allowed, 0)


def gumbel_like(t: Tensor) -> Tensor:
    """Sample Gumbel noise: argmax(e + noise) is distributed as softmax(e)."""
    return -torch.empty_like(t).exponential_().log()


def certain(scores: Tensor) -> Tensor:
    """Return log-probabilities (B, T) of 0, where nothing was sampled."""
    return scores.new_zeros(scores.shape[:2])


def _only(scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Set forbidden scores to -inf, and return where all are: a row of -inf only would have NaN gradients."""
    nothing = ~allowed.any(dim=2, keepdim=True)
    return scores.masked_fill(~allowed, -torch.inf).masked_fill(nothing, 0), nothing


def _like_scores(t: Tensor, scores: Tensor) -> Tensor:
    """Reshape (B, T, S) to broadcast with scores that may have features."""
    return t if scores.dim() == 3 else t[..., None]


def _all_of(scores: Tensor, valid: Tensor | None) -> Tensor:
    """Return which steps of the source are real, in the shape of the scores."""
    if valid is None:
        return torch.ones_like(scores, dtype=torch.bool)
    return _like_scores(valid[:, None], scores).expand_as(scores)


def _near(scores: Tensor, valid: Tensor | None, center: Tensor, window: int) -> Tensor:
    """Return which real steps lie within the window around a center (B, T)."""
    away = torch.arange(scores.shape[2], device=scores.device) - center[:, :, None]
    return _like_scores(away.abs() <= window, scores) & _all_of(scores, valid)


def _lengths(scores: Tensor, valid: Tensor | None) -> Tensor:
    """Return each row's number of source steps (B,)."""
    if valid is None:
        return torch.full((len(scores),), scores.shape[2], device=scores.device)
    return valid.sum(1)


def _checked_window(window: int) -> int:
    if window < 1:
        raise ValueError(f"window: got {window}, expected at least 1 step to each side")
    return window
