"""Time stamps: text to instants, and the one frequency that all of them must have.

A step of fixed length (seconds to weeks) is counted in seconds, one of months, quarters or years in months; plain
whole numbers that are no years are counted as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError

YEARS = range(1000, 3000)  # whole numbers that are read as years
NAMES = {("seconds", 1): "second", ("seconds", 60): "minute", ("seconds", 3600): "hour", ("seconds", 86400): "day"}
NAMES |= {("seconds", 604800): "week", ("months", 1): "month", ("months", 3): "quarter", ("months", 12): "year"}
SEASONS = {"second": 60, "minute": 60, "hour": 24, "day": 7, "week": 52, "month": 12, "quarter": 4}
DAY = 86400  # seconds
FEW = 4  # stamps that are too few to tell mistakes
EPOCH = datetime(1970, 1, 1)
QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])", re.IGNORECASE)
PATTERNS = (
    *("%Y-%m", "%Y/%m", "%b-%y", "%Y-%b"),
    *("%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S"),
    *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
)
AMBIGUOUS = re.compile(r"\d{1,2}([/-])\d{1,2}\1\d{2,4}( .*)?")  # the day first, or the month
DATE_LIKE = re.compile(r"\d{1,4}[-/. ]\w{1,9}[-/. ]\d{1,4}\b.*|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}\b.*")
ON_ONE_DAY = 0.8  # share of stamps on one day of their months from which on the others are mistakes

Instants = NDArray[np.int64]


@dataclass(frozen=True)
class Frequency:
    """The distance of two time stamps: `count` units of seconds, months or plain steps.

    Where stamps are the last days of months, `month_end` keeps them there.
    """

    unit: str  # seconds, months or steps
    count: int
    month_end: bool = False

    @property
    def name(self) -> str:
        """The word for it: hour, month, 15 minutes …"""
        known = NAMES.get((self.unit, self.count))
        if known:
            return known
        smaller = [(n, size) for (unit, size), n in NAMES.items() if unit == self.unit and self.count % size == 0]
        word, size = max(smaller, key=lambda pair: pair[1], default=("step", 1))
        times = self.count // size
        return word if times == 1 else f"{times} {word}s"

    @property
    def distance(self) -> str:
        """The same with its article: a day, an hour, 15 minutes."""
        if self.name[0].isdecimal():
            return self.name
        return f"an {self.name}" if self.name == "hour" else f"a {self.name}"

    @property
    def season(self) -> int:
        """The steps of the usual season: a day of hours, a week of days, a year of months; 1 where there is none."""
        return SEASONS.get(self.name, 86400 // self.count if self.unit == "seconds" and self.count < 86400 else 1)

    def after(self, last: int, steps: int) -> Instants:
        """Return the next instants after one, as `parse_stamps` counts them."""
        return self._moved(last, np.arange(1, steps + 1))

    def before(self, first: int, steps: int) -> Instants:
        """Return the instants before one, the earliest first."""
        return self._moved(first, np.arange(-steps, 0))

    def _moved(self, stamp: int, steps: NDArray[np.int64]) -> Instants:
        if self.unit != "months":
            return (stamp + steps * self.count).astype(np.int64)
        moment = instant(stamp)
        found = []
        for months in (moment.year * 12 + moment.month - 1 + steps * self.count).tolist():
            end = _days_in_month(months)
            day = end if self.month_end else min(moment.day, end)
            found.append(_seconds(moment.replace(year=months // 12, month=months % 12 + 1, day=day)))
        return np.array(found, dtype=np.int64)

    def text(self, stamp: int) -> str:
        """Return an instant as it is written in a table."""
        if self.unit == "steps":
            return str(stamp)
        moment = instant(stamp)
        if self.unit == "months" and not self.month_end and moment.day == 1:
            return f"{moment:%Y}" if self.count == 12 and moment.month == 1 else f"{moment:%Y-%m}"
        return f"{moment:%Y-%m-%d}" if (moment.hour, moment.minute, moment.second) == (0, 0, 0) else f"{moment}"


def instant(stamp: int) -> datetime:
    """Return seconds since 1970 as a date and time; earlier ones are negative."""
    return EPOCH + timedelta(seconds=int(stamp))


@dataclass(frozen=True)
class StampColumn:
    """Where stamps were read: the file, the column, and the row of each; for errors."""

    source: str
    name: str
    rows: Sequence[int]

    def error(self, number: int, problem: str) -> DataError:
        """Return the error of one of the stamps."""
        return DataError(f"{self.source}: row {self.rows[number]}, column {self.name!r}: {problem}")


def parse_stamps(texts: Sequence[str], column: StampColumn) -> tuple[Instants, bool]:
    """Return stamps as seconds since 1970, or whole numbers as they are; and whether they are dates."""
    if not are_dates(texts):
        return np.array([int(text) for text in texts], dtype=np.int64), False
    found = np.empty(len(texts), dtype=np.int64)
    for i, text in enumerate(texts):
        moment = parse_moment(text)
        if moment is None:
            raise column.error(i, unread(text))
        found[i] = _seconds(moment)
    return found, True


def unread(text: str) -> str:
    """Return what is wrong with a time stamp that `parse_moment` does not read, and what to do."""
    expected = "a time stamp such as 2024-01-31, 2024-01-31 23:00, 31.01.2024, 2024-01, 2024 or 20240131"
    advice = "write it so, name another column with --set time=NAME, or count rows with --set time=none"
    is_ambiguous = AMBIGUOUS.fullmatch(text) is not None
    why = ": whether the day or the month comes first cannot be known" if is_ambiguous else ""
    return f"got {text!r}, expected {expected}{why}; {advice}"


def is_date_like(text: str) -> bool:
    """Return whether text looks like a date, in whatever format."""
    return DATE_LIKE.fullmatch(text) is not None


def are_dates(texts: Sequence[str]) -> bool:
    """Return whether stamps are dates: False for whole numbers that are neither years nor days such as 20240131."""
    if not all(re.fullmatch(r"-?\d{1,9}", text) for text in texts):
        return True
    are_years = all(int(text) in YEARS and len(text) == 4 for text in texts)
    return are_years or all(len(text) == 8 and parse_moment(text) is not None for text in texts)


def parse_moment(text: str) -> datetime | None:
    """Return the moment that a time stamp names; None for other text."""
    quarter = QUARTER.fullmatch(text)
    if quarter:
        return datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)
    if re.fullmatch(r"\d{4}", text):
        return datetime(int(text), 1, 1)
    if re.fullmatch(r"\d{8}", text):
        text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc).replace(tzinfo=None) if moment.tzinfo else moment
    except ValueError:
        pass
    for pattern in PATTERNS:
        try:
            return datetime.strptime(text, pattern)
        except ValueError:
            continue
    return None


def _seconds(moment: datetime) -> int:
    return round((moment - EPOCH).total_seconds())


def _days_in_month(months: int) -> int:
    following = months + 1
    return (datetime(following // 12, following % 12 + 1, 1) - timedelta(days=1)).day


# ---- frequency ---------------------------------------------------------------------------------------


def find_frequency(stamps: Instants, are_dates: bool) -> Frequency:
    """Return the commonest distance of neighbours; in months where stamps fall on one day of their months."""
    if len(stamps) < 2:
        return Frequency("seconds" if are_dates else "steps", 1)
    if are_dates and _commonest(np.diff(stamps)) >= 28 * DAY:
        months = _months(stamps)
        same_day, end = (float(is_on.mean()) for is_on in (_on_usual_day(stamps), _on_last_day(stamps)))
        if max(same_day, end) == 1 or (len(stamps) > FEW and max(same_day, end) >= ON_ONE_DAY):
            return Frequency("months", max(1, _commonest(np.diff(months))), end > same_day)
    return Frequency("seconds" if are_dates else "steps", max(1, _commonest(np.diff(stamps))))


def _months(stamps: Instants) -> Instants:
    """Return each stamp's number of months since year 0."""
    moments = [instant(int(stamp)) for stamp in stamps]
    return np.array([m.year * 12 + m.month - 1 for m in moments], dtype=np.int64)


def _on_usual_day(stamps: Instants) -> NDArray[np.bool_]:
    """Return which stamps have the commonest day of the month and time of day."""
    days = [(m.day, m.hour, m.minute, m.second) for m in (instant(int(stamp)) for stamp in stamps)]
    usual = Counter(days).most_common(1)[0][0]
    return np.array([day == usual for day in days])


def _on_last_day(stamps: Instants) -> NDArray[np.bool_]:
    """Return which stamps are the last day of their months."""
    days = [instant(int(stamp)).day for stamp in stamps]
    return np.array([day == _days_in_month(month) for day, month in zip(days, _months(stamps).tolist(), strict=True)])


def _commonest(distances: Instants) -> int:
    values, counts = np.unique(distances[distances > 0], return_counts=True)
    return int(values[counts.argmax()]) if len(values) else 0


def places(stamps: Instants, frequency: Frequency) -> NDArray[np.float64]:
    """Return each stamp's distance from the first one in steps of the frequency; a fraction lies between two steps."""
    if frequency.unit != "months":
        return (stamps - stamps[0]) / frequency.count
    months = _months(stamps)
    return (months - months[0]) / frequency.count


def check_order(stamps: Instants, frequency: Frequency, column: StampColumn) -> NDArray[np.int64]:
    """Return each stamp's place on the grid of the frequency; raise for a step back, a repeat or an uneven step.

    Missing places are legal here: whether a table may have gaps is for its reader to decide.
    """
    for i in np.flatnonzero(np.diff(stamps) <= 0):
        now, before = frequency.text(int(stamps[i + 1])), frequency.text(int(stamps[i]))
        is_repeat = stamps[i + 1] == stamps[i]
        problem = f"{now} occurs twice; remove one" if is_repeat else f"{now} comes after {before}; sort the rows"
        hint = "where the file holds several series, name the column that tells them apart with --set series=NAME"
        raise column.error(int(i) + 1, f"{problem}; {hint}")
    if frequency.unit == "months":
        _check_days(stamps, frequency, column)
    at = places(stamps, frequency)
    for i in np.flatnonzero(at != np.rint(at)):
        now, first = frequency.text(int(stamps[i])), frequency.text(int(stamps[0]))
        steps = f"{now} is no whole number of steps after {first}"
        problem = f"mixed frequencies: most rows are {frequency.distance} apart, but {steps}"
        raise column.error(int(i), f"{problem}; resample the file to one frequency")
    return np.rint(at).astype(np.int64)


def _check_days(stamps: Instants, frequency: Frequency, column: StampColumn) -> None:
    """Raise for a stamp that does not fall on the day of the others: in months it would have the place of another."""
    is_on = _on_last_day(stamps) if frequency.month_end else _on_usual_day(stamps)
    for i in np.flatnonzero(~is_on):
        usual = instant(int(stamps[is_on.argmax()])).day
        expected = "the last day of its month" if frequency.month_end else f"day {usual} of its month, as others are"
        now = f"{instant(int(stamps[i]))}".removesuffix(" 00:00:00")
        problem = f"mixed frequencies: rows are {frequency.distance} apart, but {now} is not {expected}"
        advice = "mend the row, or give series of other frequencies in a file of their own"
        raise column.error(int(i), f"{problem}; {advice}")
