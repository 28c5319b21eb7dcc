"""The horizon and the look-back of windows: the usual ones, or those that fit series too short for them."""

from __future__ import annotations

from recollect.data.series.series_data import common_borders
from recollect.data.series.series_table import SeriesTable
from recollect.data.text.source import to_stderr

HORIZON, LOOKBACK = 24, 96  # where the series are long enough for them


def window_sizes(
    table: SeriesTable, split: str, season: int, horizon: int | None, lookback: int | None
) -> tuple[int, int]:
    """Return horizon and look-back: those that are given, else the usual ones, else fitted to the parts and told.

    A fitted horizon is a season where a part holds one, else half of the shortest part; a fitted look-back is half of
    the training part that is left, in whole seasons.
    """
    borders = common_borders(table, split)
    train, valid, test = (max(ends[i + 1] - ends[i] for ends in borders) for i in range(3))
    ahead, before = horizon or HORIZON, lookback or LOOKBACK
    if ahead <= min(valid, test) and ahead + before <= train:
        return ahead, before
    if horizon is None:
        most = min(valid, test, max(train - (lookback or 1), 1))
        ahead = season if 1 < season <= min(most, HORIZON) else max(min(most // 2, HORIZON), 1)
    if lookback is None:
        half = max((train - ahead) // 2, 1)
        whole = half - half % season if half >= season else half
        before = min(LOOKBACK, whole)
    if horizon is None or lookback is None:
        fitted = f"horizon {ahead} and look-back {before}, fitted to {train} rows of training"
        to_stderr(f"{table.source}: short: {fitted}; others: --set horizon=N --set lookback=N")
    return ahead, before
