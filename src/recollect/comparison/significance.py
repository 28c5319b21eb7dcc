"""Which differences between models are more than chance: another seed and another test part would give other figures.

Rules 2 and 3 of docs/decisions/0024-comparisons.md. Test items are drawn with replacement, the same draw for all
models; what a draw differs by is widened to Student's distribution, which matters where items are few. Seeds are too
few to be drawn: their mean is shifted by s/√n · t, t from Student's distribution with n − 1 degrees of freedom,
independently for each model. A model that counts has no seed, and only varies with the items.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recollect.core.task import ItemScores

DRAWS = 4000
BATCH = 500  # draws computed at once
MOST_ITEMS = 1000  # more are joined with their neighbours
LEVEL = 0.05  # of the tests, after the correction
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A model's figures on the test items: one `ItemScores` for each seed, or a single one without a seed."""

    name: str
    seeds: Sequence[ItemScores]
    counts: bool = False  # it has no seed

    @property
    def values(self) -> list[float]:
        """The figure of each seed."""
        return [items.value for items in self.seeds]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return math.fsum(self.values) / len(self.values)

    @property
    def is_single(self) -> bool:
        """Whether it was trained with one seed only, which tells nothing about others."""
        return len(self.seeds) == 1 and not self.counts

    @property
    def items(self) -> int:
        """The number of test items that can be drawn."""
        return len(self.seeds[0].numerators) if self.seeds else 0

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds; NaN for a single seed, 0 without any."""
        if self.counts:
            return 0.0
        return float(np.std(self.values, ddof=1)) if len(self.seeds) > 1 else math.nan


@dataclass(frozen=True)
class Draws:
    """The models' figures under other seeds and test items: (draws,) for each name; NaN where seeds are too few."""

    values: Mapping[str, Floats]

    def interval(self, name: str, share: float = 0.95) -> tuple[float, float]:
        """Return the interval of a model's figure."""
        low, high = np.quantile(self.values[name], [(1 - share) / 2, (1 + share) / 2])
        return float(low), float(high)

    def better(self, name: str, value: float, lower_is_better: bool) -> float:
        """Return the share of draws in which a model is better than a fixed figure; 0 where seeds are too few."""
        difference = self.values[name] - value
        return float(np.mean(difference < 0 if lower_is_better else difference > 0))

    def difference(self, one: str, other: str, share: float = 0.95) -> tuple[float, float]:
        """Return the interval of the difference of two models; NaN where seeds are too few."""
        low, high = np.quantile(self.values[one] - self.values[other], [(1 - share) / 2, (1 + share) / 2])
        return float(low), float(high)

    def equality(self, one: str, other: str) -> float:
        """Return p of two models being equal: twice the share of draws on the other side of zero."""
        difference = self.values[one] - self.values[other]
        if np.isnan(difference).any():
            return 1.0
        return float(min(1.0, 2 * min(np.mean(difference <= 0), np.mean(difference >= 0))))


def draw(models: Sequence[Measured], count: int = DRAWS, seed: int = 0) -> Draws:
    """Return draws of the models' figures; they do not depend on the order of the models."""
    items = {model.name: [one.grouped(MOST_ITEMS) for one in model.seeds] for model in models}
    sizes = {len(one.numerators) for seeds in items.values() for one in seeds}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"items: got {sorted(sizes)}, expected the same number, at least 1, for every model and seed")
    (size,) = sizes
    found = {model.name: np.empty(count) for model in models}
    source = np.random.default_rng(seed)
    for start in range(0, count, BATCH):
        rows = min(BATCH, count - start)
        times = source.multinomial(size, np.full(size, 1 / size), size=rows).astype(np.float64)  # (draws, items)
        wider = _widening(source, size, rows)
        for model in models:
            drawn = np.mean([_ratio(one, times) for one in items[model.name]], axis=0)
            found[model.name][start : start + rows] = model.mean + wider * (drawn - model.mean)
    for model in models:
        found[model.name] += _shift(model, count, seed)
    return Draws(found)


def _widening(source: np.random.Generator, items: int, rows: int) -> Floats:
    """Return √(n / χ²) for each draw, χ² with n − 1 degrees of freedom.

    Means of n items that are drawn again vary too little, by √((n − 1)/n), and are normal: divided by √(χ²/(n − 1))
    they have Student's distribution, as the mean of n items has.
    """
    return np.sqrt(items / source.chisquare(max(items - 1, 1), rows))


def _ratio(items: ItemScores, times: Floats) -> Floats:
    """Return the figure of each draw (draws,), an item counting as often as it was drawn."""
    below = times @ np.asarray(items.denominators)
    above = times @ np.asarray(items.numerators)
    return np.asarray((above / np.maximum(below, 1e-300)) ** items.power)


def _shift(model: Measured, count: int, seed: int) -> Floats:
    """Return s/√n · t for each draw; NaN for a single seed, which tells nothing about others."""
    n = len(model.seeds)
    if model.counts:
        return np.zeros(count)
    if n == 1:
        return np.full(count, math.nan)
    named = int.from_bytes(hashlib.sha256(model.name.encode()).digest()[:8], "big")
    t = np.random.default_rng([seed, named]).standard_t(n - 1, size=count)
    return np.asarray(model.spread / math.sqrt(n) * t)


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Return p corrected for all hypotheses, in their order: the k-th smallest of m times m − k, never decreasing."""
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, (name, chance) in enumerate(sorted(chances.items(), key=lambda pair: (pair[1], pair[0]))):
        largest = max(largest, min(1.0, chance * (len(chances) - place)))
        corrected[name] = largest
    return {name: corrected[name] for name in chances}
