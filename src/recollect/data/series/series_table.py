"""One or many series from a table: channels over time, on a grid of one frequency.

Two layouts are read: a column for each channel, and (with `series`) many series below each other, told apart by the
names in a column. An empty cell is a missing value, and a series may start late or end early.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError
from recollect.data.series.number_table import NumberTable, read_number_table
from recollect.data.series.time_stamps import (
    Frequency,
    Instants,
    StampColumn,
    are_dates,
    check_order,
    find_frequency,
    is_date_like,
    parse_moment,
    parse_stamps,
    unread,
)

TIME_NAMES = {"date", "time", "timestamp", "datetime", "ds", "day", "week", "month", "quarter", "year", "step", "t"}
GAPS = ("refuse", "mask")
MIXED = 0.25  # share of rows from which on gaps are another frequency: at weekends a fifth of workdays has one
FEW = 2  # gaps that are no frequency
IN_A_ROW = 5  # equal gaps that are another frequency

Values = NDArray[np.float64]


@dataclass(frozen=True)
class TimeSeries:
    """One series: values (T, C), NaN where one is missing, at stamps (T,) without gaps."""

    name: str
    stamps: Instants
    values: Values


@dataclass(frozen=True)
class SeriesTable:
    """Series of the same channels and frequency."""

    source: str
    channels: tuple[str, ...]
    frequency: Frequency
    series: tuple[TimeSeries, ...]
    is_timed: bool = True  # False: rows are counted, so that the stamps of two series are not of one clock

    @property
    def digest(self) -> str:
        """The hash of names, stamps and values."""
        found = hashlib.sha256(repr((self.channels, self.frequency)).encode())
        for one in self.series:
            found.update(one.name.encode() + one.stamps.tobytes() + one.values.tobytes())
        return found.hexdigest()


def read_series(
    source: str, *, target: str | None = None, time: str | None = None, series: str | None = None, gaps: str = "refuse"
) -> SeriesTable:
    """Read the series of a table.

    target: the channels, names with commas between; None: every column of numbers. time: the column of time stamps;
    "none": rows are counted; None: the one that is called so or holds dates, else rows are counted. series: the column
    that tells series apart. gaps: whether missing rows are refused, or become missing values.
    """
    table = read_number_table(source)
    groups = _groups(table, series)
    if time is None:
        time = _time_column(table, series, groups)
    elif time == "none" and time not in table.header:
        time = None
    channels = _channels(table, target, [name for name in (time, series) if name is not None])
    values = np.array([table.numbers(name) for name in channels], dtype=np.float64).T  # (T, C)
    column = StampColumn(table.source, time or "", table.rows)
    if time is None:
        stamps, is_dated = np.zeros(len(table.lines), dtype=np.int64), False
        for rows in groups.values():
            stamps[rows] = np.arange(len(rows))
    else:
        stamps, is_dated = parse_stamps(table.column(time), column)
    first = max(groups.values(), key=len)
    frequency = find_frequency(stamps[first], is_dated)
    found = [
        _on_grid(name, stamps[rows], values[rows], frequency, _part(column, rows), gaps)
        for name, rows in groups.items()
    ]
    return SeriesTable(table.source, channels, frequency, tuple(found), is_timed=time is not None)


def _time_column(table: NumberTable, series: str | None, groups: dict[str, NDArray[np.int64]]) -> str | None:
    """Return the column with a name of time, else the first that holds dates; raise for dates in an unknown format."""
    names = [name for name in table.header if name != series]
    named = next((name for name in names if name.lower() in TIME_NAMES), None)
    if named is not None:
        return named
    texts = [name for name in names if not table.is_numeric(name)]
    for name in [*names[:1], *texts]:
        cells = table.column(name)
        if parse_moment(cells[0]) is not None and are_dates(cells) and _increase(cells, groups):
            return name
    for name in texts:
        cells = table.column(name)
        if sum(map(is_date_like, cells)) > len(cells) / 2:
            row = next(i for i, text in enumerate(cells) if is_date_like(text))
            raise StampColumn(table.source, name, table.rows).error(row, unread(cells[row]))
    return None


def _increase(cells: Sequence[str], groups: dict[str, NDArray[np.int64]]) -> bool:
    """Return whether whole numbers increase within each series, as years do and prices do not; True of other cells."""
    if not all(cell.isdecimal() for cell in cells):
        return True
    numbers = np.array([int(cell) for cell in cells])
    return all((np.diff(numbers[rows]) > 0).all() for rows in groups.values())


def _channels(table: NumberTable, target: str | None, others: Sequence[str]) -> tuple[str, ...]:
    if target is not None:
        names = (target,) if target in table.header else tuple(name.strip() for name in target.split(","))
        for name in names:
            table.place(name)
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise DataError(f"target: got {target!r}, which names {doubled!r} twice; name each column once")
        return names
    free = [name for name in table.header if name not in others]
    found = tuple(name for name in free if table.is_numeric(name))
    if not found:
        commas = next((name for name in free if table.has_decimal_commas(name)), None)
        why = "add one" if commas is None else f"column {commas!r} has decimal commas: write 1.5, not 1,5"
        raise DataError(f"{table.source}: row 1: no column of numbers among {', '.join(table.header)}; {why}")
    return found


def _groups(table: NumberTable, series: str | None) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each series by its name, in the order of the table."""
    if series is None:
        return {"": np.arange(len(table.lines))}
    found: dict[str, list[int]] = {}
    for i, name in enumerate(table.column(series)):
        if not name:
            raise DataError(
                f"{table.source}: row {table.rows[i]}, column {series!r}: a series without a name; give it one"
            )
        found.setdefault(name, []).append(i)
    return {name: np.array(rows) for name, rows in found.items()}


def _part(column: StampColumn, rows: NDArray[np.int64]) -> StampColumn:
    return StampColumn(column.source, column.name, [column.rows[i] for i in rows])


def _on_grid(
    name: str, stamps: Instants, values: Values, frequency: Frequency, column: StampColumn, gaps: str
) -> TimeSeries:
    """Return a series with a row for every step; raise for missing rows unless they are to be masked."""
    at = check_order(stamps, frequency, column)
    late = np.flatnonzero(np.diff(at) > 1)
    if len(late) and gaps == "refuse":
        i = int(late[0])
        missing = int(at[i + 1] - at[i] - 1)
        before = frequency.text(int(stamps[i]))
        if (len(late) > MIXED * len(at) and len(late) > FEW) or _has_run(np.diff(at)):
            seen = f"mixed frequencies: most rows are {frequency.distance} apart, but {len(late)} of {len(at)} are not"
            advice = "resample the file to one frequency, or read missing values between with --set gaps=mask"
            raise column.error(i + 1, f"{seen}, the first after {before}; {advice}")
        problem = f"a gap: {missing} {'row is' if missing == 1 else 'rows are'} missing after {before}"
        each = f", where rows are {frequency.distance} apart"
        raise column.error(i + 1, f"{problem}{each}; add them, or read them as missing values with --set gaps=mask")
    full = np.full((int(at[-1]) + 1, values.shape[1]), np.nan)
    full[at] = values
    ahead = frequency.after(int(stamps[0]), len(full) - 1)
    return TimeSeries(name, np.concatenate([stamps[:1], ahead]), full)


def _has_run(distances: NDArray[np.int64]) -> bool:
    """Return whether several rows one after another are equally far apart, and farther than a step."""
    is_same = (distances[1:] == distances[:-1]) & (distances[1:] > 1)
    runs = np.lib.stride_tricks.sliding_window_view(is_same, min(IN_A_ROW - 1, len(is_same)))
    return len(is_same) >= IN_A_ROW - 1 and bool(runs.all(axis=1).any())
