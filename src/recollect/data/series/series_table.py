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
    parse_moment,
    parse_stamps,
)

TIME_NAMES = {"date", "time", "timestamp", "datetime", "ds", "day", "week", "month", "quarter", "year", "step", "t"}
GAPS = ("refuse", "mask")
MIXED = 0.25  # share of rows from which on gaps are another frequency: at weekends a fifth of workdays has one
FEW = 2  # gaps that are no frequency

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

    target: the channels, names with commas between; None: every column of numbers. time: the column of time stamps,
    None: the one that is called so or holds dates, else rows are counted. series: the column that tells series apart.
    gaps: whether missing rows are refused, or become missing values.
    """
    table = read_number_table(source)
    time = time or _time_column(table)
    channels = _channels(table, target, [name for name in (time, series) if name is not None])
    values = np.array([table.numbers(name) for name in channels], dtype=np.float64).T  # (T, C)
    texts = [str(n) for n in range(len(table.lines))] if time is None else table.column(time)
    column = StampColumn(table.source, time or "", table.rows)
    stamps, is_dated = parse_stamps(texts, column)
    groups = _groups(table, series)
    first = max(groups.values(), key=len)
    frequency = find_frequency(stamps[first], is_dated)
    found = [
        _on_grid(name, stamps[rows], values[rows], frequency, _part(column, rows), gaps)
        for name, rows in groups.items()
    ]
    return SeriesTable(table.source, channels, frequency, tuple(found))


def _time_column(table: NumberTable) -> str | None:
    named = next((name for name in table.header if name.lower() in TIME_NAMES), None)
    first = table.header[0]
    cells = table.column(first)
    is_dated = are_dates(cells) and parse_moment(cells[0]) is not None
    return named or (first if is_dated else None)


def _channels(table: NumberTable, target: str | None, others: Sequence[str]) -> tuple[str, ...]:
    if target is not None:
        names = (target,) if target in table.header else tuple(name.strip() for name in target.split(","))
        for name in names:
            table.place(name)
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
        if len(late) > MIXED * len(at) and len(late) > FEW:
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
