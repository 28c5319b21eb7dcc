"""Scores e(q, k) of a query against a step of a source.

Every score has two parts: `keys`, which does not depend on the query and is computed once for a source, and `forward`,
which is computed for each query.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.errors import check_choice
from recollect.core.types import TensorOptions


class Score(nn.Module):
    """A score of every query against every source step.

    `query_width` and `key_width` are the widths of queries and source features, `width` (K) that of the keys that are
    remembered. `features` is None, or the number of scores per step (multi-dimensional attention).

    >>> class Negative(rc.Score):
    ...     def forward(self, q, keys):
    ...         return -(q @ keys.transpose(1, 2))
    >>> rc.Attend(Negative(4, 4)).width_out
    4
    """

    features: int | None = None

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.key_width = key_width
        self.width = key_width

    def keys(self, source: Tensor) -> Tensor:
        """Return the keys of a source's features: (B, S, D) to (B, S, K)."""
        return source

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Score queries (B, T, D_q) against keys (B, S, K): (B, T, S), or (B, T, S, features)."""
        raise NotImplementedError


class Additive(Score):
    """e(q, k) = wᵀ tanh(W_1 q + W_2 k + b) (Bahdanau et al. 2015, appendix A.1.2, there without b).

    W_2 k is remembered. Luong's concat, wᵀ tanh(W [q; k]), is the same with W = [W_1, W_2] and b = 0. With `features`
    w becomes a matrix of so many columns and every feature of the values gets a score of its own, as in Shen et al.
    2018, "DiSAN".

    >>> score = rc.Additive(6, 4, hidden=8)
    >>> score(torch.randn(2, 3, 6), score.keys(torch.randn(2, 5, 4))).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        *,
        hidden: int | None = None,
        features: int | None = None,
        bias: bool = True,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__(query_width, key_width)
        self.features = features
        self.width = hidden or key_width
        self.query = nn.Linear(query_width, self.width, bias=bias, **factory)
        self.key = nn.Linear(key_width, self.width, bias=False, **factory)
        self.out = nn.Linear(self.width, features or 1, bias=False, **factory)

    def keys(self, source: Tensor) -> Tensor:
        """Return W_2 k."""
        return self.key(source)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return wᵀ tanh(W_1 q + b + keys)."""
        hidden = torch.tanh(self.query(q)[:, :, None] + keys[:, None])  # (B, T, S, K)
        scores = self.out(hidden)
        return scores if self.features else scores.squeeze(3)


class Dot(Score):
    """e(q, k) = qᵀ k (Luong et al. 2015, section 3.1).

    >>> rc.Dot(2, 2)(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])).tolist()
    [[[11.0, 2.0]]]
    """

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        _check_equal(query_width, key_width)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the dot products of queries and keys."""
        return q @ keys.transpose(1, 2)


class ScaledDot(Dot):
    """e(q, k) = qᵀ k / √D (Vaswani et al. 2017, eq. 1): its variance does not grow with the width.

    >>> rc.ScaledDot(4, 4)(torch.ones(1, 1, 4), torch.ones(1, 2, 4)).tolist()
    [[[2.0, 2.0]]]
    """

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the dot products divided by √D."""
        return super().forward(q, keys) / math.sqrt(self.key_width)


class General(Score):
    """e(q, k) = kᵀ W q (Luong et al. 2015, section 3.1): queries and keys may differ in width.

    >>> rc.General(6, 4)(torch.randn(2, 3, 6), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    biased = False

    def __init__(self, query_width: int, key_width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__(query_width, key_width)
        self.query = nn.Linear(query_width, key_width, bias=self.biased, **factory)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return kᵀ (W q); W q is computed first, since there are fewer queries than keys."""
        return self.query(q) @ keys.transpose(1, 2)


class BiasedGeneral(General):
    """e(q, k) = kᵀ (W q + b) (Sordoni et al. 2016): kᵀ b scores a key whatever the query.

    >>> rc.BiasedGeneral(6, 4)(torch.randn(2, 3, 6), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    biased = True


class ActivatedGeneral(General):
    """e(q, k) = φ(kᵀ W q + b) with one number b (Ma et al. 2017, "IAN"). φ is "tanh", "relu" or "identity".

    >>> scores = rc.ActivatedGeneral(6, 4)(torch.randn(2, 3, 6), torch.randn(2, 5, 4))
    >>> tuple(scores.shape), bool((scores.abs() <= 1).all())
    ((2, 3, 5), True)
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        *,
        activation: Literal["tanh", "relu", "identity"] = "tanh",
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__(query_width, key_width, **factory)
        check_choice("activation", activation, ("tanh", "relu", "identity"))
        self.activation = activation
        self.bias = nn.Parameter(torch.zeros((), **factory))

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return φ of the general score plus b."""
        scores = super().forward(q, keys) + self.bias
        return scores if self.activation == "identity" else getattr(torch, self.activation)(scores)


class Tempered(Score):
    """A similarity divided by a temperature τ; `learned` makes it a parameter, as τ = temperature · exp(−parameter).

    Similarities live in a narrow range (a cosine between -1 and 1), where a softmax over many steps stays almost flat
    unless τ is small.
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        *,
        temperature: float = 1.0,
        learned: bool = False,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__(query_width, key_width)
        _check_equal(query_width, key_width)
        if temperature <= 0:
            raise ValueError(f"temperature: got {temperature}, expected a number above 0")
        self.temperature = temperature
        self.log_sharpness = nn.Parameter(torch.zeros((), **factory)) if learned else None

    def similarity(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the similarity of queries and keys: (B, T, S)."""
        raise NotImplementedError

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the similarity divided by the temperature."""
        scores = self.similarity(q, keys) / self.temperature
        return scores if self.log_sharpness is None else scores * self.log_sharpness.exp()


class Cosine(Tempered):
    """e(q, k) = cos(q, k) / τ (Graves et al. 2014, section 3.3.1, with β = 1/τ). A zero vector scores 0.

    >>> score = rc.Cosine(2, 2, temperature=0.5)
    >>> score(torch.tensor([[[3.0, 0.0]]]), score.keys(torch.tensor([[[1.0, 0.0], [0.0, 7.0]]]))).tolist()
    [[[2.0, 0.0]]]
    """

    def keys(self, source: Tensor) -> Tensor:
        """Return k / ‖k‖."""
        return _unit(source)

    def similarity(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the cosines."""
        return _unit(q) @ keys.transpose(1, 2)


class Distance(Tempered):
    """e(q, k) = −‖q − k‖ / τ, or `squared`: −‖q − k‖² / τ.

    Squared, with τ = 2σ², softmax of it is the Gaussian kernel regression of Nadaraya 1964 and Watson 1964.

    >>> rc.Distance(2, 2)(torch.zeros(1, 1, 2), torch.tensor([[[3.0, 4.0]]])).tolist()
    [[[-5.0]]]
    """

    def __init__(self, query_width: int, key_width: int, *, squared: bool = False, **options: Any) -> None:
        super().__init__(query_width, key_width, **options)
        self.squared = squared

    def similarity(self, q: Tensor, keys: Tensor) -> Tensor:
        """Return the negative distance."""
        apart = q[:, :, None] - keys[:, None]  # (B, T, S, D)
        return -apart.square().sum(3) if self.squared else -torch.linalg.vector_norm(apart, dim=3)


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "dot": Dot,
    "scaled": ScaledDot,
    "general": General,
    "biased-general": BiasedGeneral,
    "activated-general": ActivatedGeneral,
    "cosine": Cosine,
    "distance": Distance,
}


def make_score(name: str, query_width: int, key_width: int, **options: Any) -> Score:
    """Return a score by its name, with its class's options.

    >>> score = rc.make_score("scaled", 4, 4)
    >>> score(torch.ones(1, 1, 4), score.keys(torch.ones(1, 2, 4))).tolist()
    [[[2.0, 2.0]]]
    """
    check_choice("score", name, tuple(SCORES))
    return SCORES[name](query_width, key_width, **options)


def _check_equal(query_width: int, key_width: int) -> None:
    if query_width != key_width:
        raise ValueError(f"query_width: got {query_width}, expected {key_width}, the key_width; or use score 'general'")


def _unit(t: Tensor) -> Tensor:
    # eps is not smaller: at a zero vector the incoming gradient is multiplied by 1 / eps.
    return F.normalize(t, dim=-1, eps=1e-6)
