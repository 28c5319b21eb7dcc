"""Naive figures that every table holds a model against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def unigram_loss(train: NDArray[Any], test: NDArray[Any], vocab_size: int) -> float:
    """Compute −1/N Σ log p(symbol) on the test ids, p counted on the training ids with one added to each symbol."""
    counts = np.bincount(np.asarray(train, dtype=np.int64), minlength=vocab_size) + 1
    if not len(test):
        return math.nan
    logs = np.log(counts / counts.sum())
    return -float(logs[np.asarray(test, dtype=np.int64)].mean())
