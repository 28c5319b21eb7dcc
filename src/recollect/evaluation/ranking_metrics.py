"""Metrics of ranked lists: where the relevant items stand among all candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32] | NDArray[np.float64]


def ranks_of(scores: Floats, relevant: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks of the relevant candidates, 1 is best; among equal scores each has the worst of their ranks.

    A relevant candidate does not lower the rank of another: each is ranked among the candidates that are not relevant.
    """
    others = np.sort(np.delete(scores, relevant))
    better = len(others) - np.searchsorted(others, scores[np.asarray(relevant, dtype=np.int64)], side="left")
    return np.asarray(better + 1, dtype=np.int64)


def mean_reciprocal_rank(ranks: Sequence[NDArray[np.int64]]) -> float:
    """Return the mean over queries of 1 / rank of the best relevant candidate (Voorhees 1999)."""
    return float(np.mean([1 / each.min() for each in ranks])) if ranks else float("nan")


def recall_at(k: int, ranks: Sequence[NDArray[np.int64]]) -> float:
    """Return the mean over queries of the share of relevant candidates with a rank of k or better."""
    return float(np.mean([(each <= k).mean() for each in ranks])) if ranks else float("nan")
