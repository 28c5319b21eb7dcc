"""The recommender: ratings as dot products of learned factors.

How well a film fits a person is the dot product of the film's features and the person's tastes, as a key fits a query
in self-attention. Where nobody writes the features down, both are parameters, learned from known ratings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recollect.core.errors import ContractError, check_choice
from recollect.core.settings import setting
from recollect.layers.pointwise import Pointwise

FAMILIES = ("factors", "biases")
START = 0.1  # standard deviation of the initial factors


@dataclass(frozen=True)
class RecommenderConfig:
    """The config of a recommender.

    >>> rc.RecommenderConfig("factors", users=10, items=20).width
    50
    """

    family: str
    users: int
    items: int
    mean: float = 0.0
    low: float | None = None  # the range of ratings: predictions are cut to it outside training
    high: float | None = None
    width: int = setting(50, least=1, help="factors: features of an item, tastes of a user")
    centred: bool = setting(True, help="factors: add the mean, and a bias for each user and each item")

    def __post_init__(self) -> None:
        check_choice("family", self.family, FAMILIES)


def settings_of(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return ("width", "centred") if family == "factors" else ()


class Recommender(Pointwise):
    """Ratings of items by users: ids of pairs (B, T) to ratings (B, T, 1), with nothing remembered between steps.

    factors:  r̂ = μ + b_u + b_i + p_u · q_i     (Koren, Bell & Volinsky 2009, eq. 4)
    biases:   r̂ = μ + b_u + b_i                 (eq. 3: what is rated does not depend on tastes)

    Without `centred` a rating is p_u · q_i alone. Id 0 is an unknown user or item, whose bias and factors are zero and
    stay so: it is rated by what is known of the other side. A pair's id is user · items + item.

    >>> model = rc.Recommender("factors", users=10, items=20)
    >>> pairs = model.pair(user=torch.tensor([1, 1]), item=torch.tensor([2, 3]))
    >>> model(pairs[None])[0].shape
    torch.Size([1, 2, 1])
    """

    def __init__(
        self, config: RecommenderConfig | str, users: int | None = None, items: int | None = None, **options: float
    ) -> None:
        super().__init__()
        if isinstance(config, str):
            if users is None or items is None:
                raise ContractError("users, items", (users, items), "both numbers, as in Recommender('factors', 9, 9)")
            config = RecommenderConfig(config, users, items, **options)  # type: ignore[arg-type]
        self.config = config
        self.width = None
        self.width_out = 1
        self.vocab_size = config.users * config.items
        is_centred = config.family == "biases" or config.centred
        width = config.width if config.family == "factors" else 0
        self.user_bias = _table(config.users, 1, 0.0) if is_centred else None
        self.item_bias = _table(config.items, 1, 0.0) if is_centred else None
        self.tastes = _table(config.users, width, START) if width else None
        self.features = _table(config.items, width, START) if width else None

    def pair(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the ids of pairs."""
        return user * self.config.items + item

    def map(self, x: Tensor) -> Tensor:
        """Return the rating of each pair."""
        user, item = self._sides(x)
        terms = []
        if self.user_bias is not None and self.item_bias is not None:
            terms += [self.config.mean + self.user_bias(user) + self.item_bias(item)]  # (B, T, 1)
        if self.tastes is not None and self.features is not None:
            terms += [(self.tastes(user) * self.features(item)).sum(-1, keepdim=True)]
        rating = torch.stack(terms).sum(0)
        is_cut = not self.training and self.config.low is not None  # while training, a cut would have no gradient
        return rating.clamp(self.config.low, self.config.high) if is_cut else rating

    def penalty(self, x: Tensor) -> Tensor:
        """Return Σ (b_u² + b_i² + ‖p_u‖² + ‖q_i‖²) over the pairs: a table is penalised as often as it is used."""
        user, item = self._sides(x)
        used = ((self.user_bias, user), (self.item_bias, item), (self.tastes, user), (self.features, item))
        terms = [table(ids).square().sum() for table, ids in used if table is not None]
        return torch.stack(terms).sum()

    @torch.no_grad()
    def rate_all(self, user: int) -> Tensor:
        """Return a user's ratings of all items, by id."""
        items = torch.arange(self.config.items, device=next(self.parameters()).device)  # (I,)
        return self.map(self.pair(torch.full_like(items, user), items)[None])[0, :, 0]

    def _sides(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x // self.config.items, x % self.config.items  # (B, T) each


def _table(rows: int, width: int, spread: float) -> nn.Embedding:
    table = nn.Embedding(rows, width, padding_idx=0)
    with torch.no_grad():
        table.weight.normal_(std=spread) if spread else table.weight.zero_()
        table.weight[0] = 0
    return table
