"""Naive figures that every table holds a model against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def unigram_loss(train: NDArray[Any], test: NDArray[Any], vocab_size: int, unknown: int | None = None) -> float:
    """Compute −1/N Σ log p(symbol) on the test ids, p counted on the training ids with one added to each symbol.

    The id `unknown`, of symbols that are not in the vocabulary, is left out of the test ids.
    """
    counts = np.bincount(np.asarray(train, dtype=np.int64), minlength=vocab_size) + 1
    known = np.asarray(test, dtype=np.int64)
    known = known if unknown is None else known[known != unknown]
    if not len(known):
        return math.nan
    logs = np.log(counts / counts.sum())
    return -float(logs[known].mean())
