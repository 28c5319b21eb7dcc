"""Series in three parts by time: scaled by what the training part knows, cut into windows.

The rows of a part are those that are predicted; what is read may lie in the part before. Nothing of a later part is
used for scaling, so nothing leaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.series.calendar_features import calendar_features, calendar_names
from recollect.data.series.series_table import SeriesTable, TimeSeries, Values
from recollect.data.series.time_stamps import Frequency
from recollect.data.series.windows import Rows, SeriesWindows
from recollect.data.text.source import to_stderr

PARTS = ("train", "valid", "test")
LEAST = 2  # rows that have a scale
NAMED = 5  # series in a notice


class PartTooShort(DataError):
    """A part of the data has too few rows for one window."""

    def __init__(self, message: str, part: str, rows: int) -> None:
        super().__init__(message)
        self.part, self.rows = part, rows


@dataclass(frozen=True)
class SeriesFacts:
    """What a run keeps of its data: channels, frequency, season, and each series' mean and deviation."""

    channels: tuple[str, ...]
    frequency: Frequency
    season: int
    calendar: bool
    means: Mapping[str, Sequence[float]]  # by series, for each channel, over the training part
    deviations: Mapping[str, Sequence[float]]
    steps: Mapping[str, Sequence[float]]  # mean |x_t − x_{t−season}| in deviations: the denominator of MASE
    lookback: int = 0  # rows that windows read, and predict; 0: of a run before they were kept
    horizon: int = 0

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_file(path, json.dumps(asdict(self), ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: Path) -> SeriesFacts:
        """Read it back."""
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        frequency = Frequency(**saved.pop("frequency"))
        return cls(channels=tuple(saved.pop("channels")), frequency=frequency, **saved)

    def check_same(self, table: SeriesTable) -> None:
        """Raise for a table of other channels or another frequency."""
        if self.channels != table.channels or self.frequency != table.frequency:
            got = f"{', '.join(table.channels)}, a row each {table.frequency.name}"
            trained = f"{', '.join(self.channels)}, a row each {self.frequency.name}"
            raise DataError(f"{table.source}: got {got}; expected those that the run was trained on: {trained}")

    def scale(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a series' means and deviations (C,)."""
        return np.array(self.means[name]), np.array(self.deviations[name])


@dataclass(frozen=True)
class SeriesData:
    """Three parts of windows, and the facts that a run keeps."""

    name: str
    table: SeriesTable
    facts: SeriesFacts
    rows: Rows
    train: SeriesWindows
    valid: SeriesWindows
    test: SeriesWindows

    def scales(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return means, deviations and the denominators of MASE, each (S, C)."""
        tables = (self.facts.means, self.facts.deviations, self.facts.steps)
        found = [torch.tensor([list(table[one.name]) for one in self.table.series]) for table in tables]
        return found[0], found[1], found[2]


def load_series(
    table: SeriesTable,
    known: SeriesFacts | None = None,
    *,
    lookback: int,
    horizon: int,
    split: str = "0.7,0.1,0.2",
    season: int | None = None,
    calendar: bool = False,
) -> SeriesData:
    """Split a table by time, fit the scales on the training part, and cut windows.

    All series are cut at the same instants: weights are shared, so what one series tells of a time must not be trained
    on where another is tested. A series that is `known` keeps the scale that it has there; another that begins after
    the training part has none, and is left out.
    """
    season = season or table.frequency.season
    if calendar and not calendar_names(table.frequency):
        raise DataError(f"{table.source}: calendar: its time stamps are no dates; train without --set calendar=true")
    borders = common_borders(table, split)
    table, borders = _without_late_series(table, borders, known)
    trained = [one.values[: ends[1]] for one, ends in zip(table.series, borders, strict=True)]
    facts = replace(fit_facts(table, trained, season, calendar, known), lookback=lookback, horizon=horizon)
    rows = scaled_rows(table, facts)
    parts = [_cut(table, rows, borders, number, lookback, horizon) for number in range(3)]
    name = f"{Path(table.source).name.partition('.')[0]}-{table.digest[:16]}"
    return SeriesData(name, table, facts, rows, *parts)


def common_borders(table: SeriesTable, split: str) -> list[list[int]]:
    """Return each series' rows where train, valid and test begin, and where test ends: for all at the same instants.

    Where rows are counted there are no instants: each series is cut by its own rows.
    """
    if not table.is_timed:
        return [_borders(len(one.stamps), split, table.source) for one in table.series]
    instants = np.unique(np.concatenate([one.stamps for one in table.series]))
    ends = _borders(len(instants), split, table.source)
    cuts = [instants[end] if end < len(instants) else instants[-1] + 1 for end in ends]
    return [np.searchsorted(one.stamps, cuts).tolist() for one in table.series]


def _without_late_series(
    table: SeriesTable, borders: list[list[int]], known: SeriesFacts | None
) -> tuple[SeriesTable, list[list[int]]]:
    """Return a table and its borders without the series that have no scale: too few rows in the training part."""
    known_names = known.means if known else {}
    is_kept = [ends[1] >= LEAST or one.name in known_names for one, ends in zip(table.series, borders, strict=True)]
    late = [one.name for one, is_own in zip(table.series, is_kept, strict=True) if not is_own]
    if not late or len(late) == len(table.series):
        return table, borders
    what = f"series {_some(late)}: left out" if len(late) == 1 else f"{len(late)} series left out: {_some(late)}"
    to_stderr(f"{table.source}: {what}; too few rows in the training part to tell a scale (a longer one: --set split)")
    kept = tuple(one for one, is_own in zip(table.series, is_kept, strict=True) if is_own)
    return replace(table, series=kept), [ends for ends, is_own in zip(borders, is_kept, strict=True) if is_own]


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many there are besides."""
    shown = ", ".join(repr(name) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} others"


def _borders(count: int, split: str, source: str) -> list[int]:
    """Return the rows where train, valid and test begin, and where test ends, from shares or counts of rows."""
    try:
        sizes = [float(part) for part in split.split(",")]
        is_share = sum(sizes) <= 1 + 1e-9
        if len(sizes) != 3 or min(sizes) <= 0 or not (is_share or all(size.is_integer() for size in sizes)):
            raise ValueError
    except ValueError as error:
        raise DataError(f"split: got {split!r}, expected three shares or numbers of rows, as in 0.7,0.1,0.2") from error
    counts = [size * count if is_share else size for size in sizes]
    ends = np.rint(np.cumsum(counts)).astype(int).tolist()
    if ends[-1] > count:
        raise DataError(f"{source}: split: got {split}, {ends[-1]} rows, but there are {count}; take fewer")
    return [0, *ends]


def fit_facts(
    table: SeriesTable,
    trained: Sequence[Values],
    season: int,
    calendar: bool,
    known: SeriesFacts | None = None,
) -> SeriesFacts:
    """Return the facts of series: those that are known, else from the rows that may be known.

    Raise for other channels or another frequency than the known ones, and for a series without a scale of its own.
    """
    if known is not None:
        known.check_same(table)
    means, deviations, steps = {}, {}, {}
    for one, values in zip(table.series, trained, strict=True):
        if known is not None and one.name in known.means:
            means[one.name] = list(known.means[one.name])
            deviations[one.name] = list(known.deviations[one.name])
            steps[one.name] = list(known.steps[one.name])
            continue
        for channel, column in zip(table.channels, values.T, strict=True):
            _check_column(table, one, channel, column)
        means[one.name] = np.nanmean(values, axis=0).tolist()
        deviations[one.name] = np.nanstd(values, axis=0).tolist()
        scaled = (values - means[one.name]) / deviations[one.name]
        steps[one.name] = _mean_steps(scaled, season)
    return SeriesFacts(table.channels, table.frequency, season, calendar, means, deviations, steps)


def facts_of(table: SeriesTable, known: SeriesFacts) -> SeriesFacts:
    """Return the facts that a table is predicted with; a series that the run does not know is scaled by its rows."""
    return fit_facts(table, [one.values for one in table.series], known.season, known.calendar, known)


def _check_column(table: SeriesTable, one: TimeSeries, channel: str, column: Values) -> None:
    where = f"{table.source}: column {channel!r}" + (f" of series {one.name!r}" if one.name else "")
    part = "" if len(column) == len(one.values) else " in the training part"
    seen = column[~np.isnan(column)]
    if len(seen) < 2:
        raise DataError(f"{where}: {len(seen)} values{part}, expected at least 2 to tell its scale; leave it out")
    if np.ptp(seen) == 0:
        last = table.frequency.text(int(one.stamps[len(column) - 1]))
        first = table.frequency.text(int(one.stamps[0]))
        rows = "" if one.name else f" (rows 2 to {len(column) + 1})"  # of the only series
        raise DataError(
            f"{where}: constant at {seen[0]:g}{part}, {first} to {last}{rows}: "
            f"there is nothing to learn; {'remove its rows' if one.name else 'leave it out with --set target=NAME'}"
        )


def _mean_steps(scaled: Values, season: int) -> list[float]:
    """Return mean |x_t − x_{t−season}| of each channel; at season 1 where the part is too short or never changes so."""
    lag = season if len(scaled) > season else 1
    distances = np.abs(scaled[lag:] - scaled[:-lag])
    known = np.where(np.isnan(distances), 0.0, distances).sum(0) / np.maximum((~np.isnan(distances)).sum(0), 1)
    return np.where(known > 0, known, 1.0).tolist()


def scaled_rows(table: SeriesTable, facts: SeriesFacts) -> Rows:
    """Return the rows of all series, scaled and filled."""
    values, seen, marks, numbers = [], [], [], []
    for number, one in enumerate(table.series):
        mean, deviation = facts.scale(one.name)
        values.append(_filled((one.values - mean) / deviation))
        seen.append(~np.isnan(one.values))
        numbers.append(np.full(len(one.stamps), number))
        if facts.calendar:
            marks.append(calendar_features(one.stamps, table.frequency))
    observed = np.concatenate(seen)
    return Rows(
        values=torch.from_numpy(np.concatenate(values).astype(np.float32)),
        observed=None if observed.all() else torch.from_numpy(observed),
        calendar=torch.from_numpy(np.concatenate(marks)) if marks else None,
        series=torch.from_numpy(np.concatenate(numbers)),
    )


def _filled(values: Values) -> Values:
    """Return each missing value as the last one before it, 0 (the mean) before the first."""
    last = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    found = np.take_along_axis(values, np.maximum.accumulate(last, axis=0), axis=0)
    return np.where(np.isnan(found), 0.0, found)


def _cut(
    table: SeriesTable, rows: Rows, borders: Sequence[Sequence[int]], part: int, lookback: int, horizon: int
) -> SeriesWindows:
    """Return the windows whose predicted rows all lie in one part and have a value to compare with."""
    starts, offset = [], 0
    for one, ends in zip(table.series, borders, strict=True):
        begin, end = ends[part], ends[part + 1]
        first = np.arange(max(begin - lookback, 0), end - horizon - lookback + 1)
        is_known = ~np.isnan(one.values)
        known = np.concatenate([[0], is_known.any(1).cumsum()])
        has_target = known[first + lookback + horizon] > known[first + lookback]
        starts.append(offset + first[has_target])
        offset += len(one.stamps)
    found = np.concatenate(starts)
    if not len(found):
        longest = max(ends[part + 1] - ends[part] for ends in borders)
        needed = horizon + (lookback if part == 0 else 0)
        sizes = [max(ends[i + 1] - ends[i] for ends in borders) for i in range(3)]
        ahead = max(min(horizon, *(size // 2 for size in sizes)), 1)
        shorter = f"--set horizon={ahead} --set lookback={max(min(lookback, (sizes[0] - ahead) // 2), 1)}"
        raise PartTooShort(
            f"{table.source}: horizon {horizon} and lookback {lookback} need {needed} rows of values in the "
            f"{PARTS[part]} part, which has {longest}; shorten them ({shorter}), change --set split, or give more "
            "data",
            PARTS[part],
            longest,
        )
    without = [one.name for one, own in zip(table.series, starts, strict=True) if not len(own)]
    if without:
        to_stderr(f"{table.source}: no window of series {_some(without)} in the {PARTS[part]} part: too few rows there")
    return SeriesWindows(rows, found, lookback, horizon)
