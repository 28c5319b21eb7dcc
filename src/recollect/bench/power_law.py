"""Exponents of growth: the slope of a straight line through logarithms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

LEAST = 3  # sizes that a slope is fitted to


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return b of value = a · size^b by least squares on the logarithms."""
    if len(sizes) < 2 or min(*sizes, *values) <= 0:
        raise ValueError(f"sizes, values: got {list(sizes)} and {list(values)}, expected two or more, all above 0")
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(v) for v in values]).slope


def upper_half(sizes: Sequence[float]) -> int:
    """Return the index at which the upper half of a range begins, by its geometric mean; it has three sizes or more."""
    below = sum(n * n < sizes[0] * sizes[-1] for n in sizes)
    return max(min(below, len(sizes) - LEAST), 0)


def fit(sizes: Sequence[float], rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Fit the upper half of a range, where constant costs matter least.

    `rounds` has the values of every size in turn. The exponent is that of the medians; the quartiles are those of the
    rounds' own exponents.
    """
    start = upper_half(sizes)
    medians = [statistics.median(values) for values in zip(*rounds, strict=True)]
    own = [exponent(sizes[start:], values[start:]) for values in rounds]
    low, _, high = statistics.quantiles(own, n=4, method="inclusive")
    return {"exponent": exponent(sizes[start:], medians[start:]), "low": low, "high": high, "from": sizes[start]}
