"""Errors of overlapping windows by blocks of rows, for comparing models: blocks can be drawn again, windows cannot.

Neighbouring windows predict nearly the same rows, and counting them as separate evidence finds differences that are
none. So all errors at a row lie in one block, whichever window they are of, and a block is twice as long as a window
predicts: what a single window gets wrong lies in one block or in two.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.task import ItemScores
from recollect.data.series.windows import SeriesWindows

HORIZONS = 2  # that a block has at least


def block_scores(part: SeriesWindows, errors: Tensor, counts: Tensor) -> ItemScores:
    """Return sums of errors (N, H) and of the numbers of values by blocks of rows, and the mean by place (H,).

    `errors` are those of the first H rows that each window of the part predicts.
    """
    blocks = _block_numbers(part, errors.shape[1])
    above = np.bincount(blocks.ravel(), errors.double().numpy().ravel())
    below = np.bincount(blocks.ravel(), counts.double().numpy().ravel())
    is_known = below > 0
    by_place = (errors.sum(0) / counts.sum(0).clamp(min=1)).tolist()
    return ItemScores(above[is_known].tolist(), below[is_known].tolist(), by_position=by_place)


def _block_numbers(part: SeriesWindows, horizon: int) -> NDArray[np.int64]:
    """Return the block (N, H) of each row that is predicted; the predicted rows of a series are divided evenly."""
    rows = (part.starts + part.lookback)[:, None] + np.arange(horizon)  # (N, H)
    named = part.rows.series[torch.from_numpy(part.starts)].numpy()
    series, own = np.unique(named, return_inverse=True)  # (S,), (N,)
    first = np.full(len(series), np.iinfo(np.int64).max)
    last = np.zeros(len(series), dtype=np.int64)
    np.minimum.at(first, own, rows[:, 0])
    np.maximum.at(last, own, rows[:, -1])
    lengths = last - first + 1
    counts = np.maximum(1, lengths // (HORIZONS * horizon))
    before = np.cumsum(counts) - counts  # blocks of other series
    places = (rows - first[own, None]) * counts[own, None] // lengths[own, None]
    return np.asarray(before[own, None] + places)
