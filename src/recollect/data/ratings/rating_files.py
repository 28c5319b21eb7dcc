"""Where ratings come from: a table of users, items and ratings, one a row, or a built-in.

A first row that holds no number where the rating stands holds the names of the columns. Errors name the file and the
line.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Container, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from recollect.core.errors import nearest
from recollect.data.error import DataError, did_you_mean
from recollect.data.synthetic.tastes import generated_ratings, is_tastes
from recollect.data.text.encoding import UNREADABLE, find_encoding, open_text
from recollect.data.text.formats import TABLES, format_of

COLUMNS = "user,item,rating"
DELIMITERS = ("\t", "::", ",", ";", " ")  # the first that occurs in the first line
FORMS = "a table with a user, an item and a rating in each row, or the built-in tastes"


class RatingRow(NamedTuple):
    """One rating, and where it was read."""

    user: str
    item: str
    value: float
    where: str


def read_ratings(data: str, field: str | None = None) -> Iterator[RatingRow]:
    """Yield the ratings of DATA; `field` names the three columns, by default the first three in that order."""
    if is_tastes(data):
        yield from (RatingRow(*one, where=f"{data}, {i}") for i, one in enumerate(generated_ratings(data), 1))
        return
    find_ratings(data)
    path = Path(data)
    rows = table_rows(path)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path}: an empty file; ratings are {FORMS}")
    places, is_header = _places(first, field)
    if not is_header:
        yield _rating(first, places)
    for row in rows:
        if len(row.cells) != len(first.cells):  # a comma in a name without quotes would move the rating
            got = f"{row.where}: {len(row.cells)} cells, but the first line has {len(first.cells)}"
            raise DataError(f"{got}; mend the row, with quotes around a name that holds the delimiter")
        yield _rating(row, places)


def find_ratings(data: str) -> None:
    """Raise a DataError where DATA is neither a file nor the built-in; a file is not opened."""
    path = Path(data)
    if not is_tastes(data) and not path.is_file():
        raise DataError(f"{data}: no such file{did_you_mean(path, ['tastes'])}; ratings are {FORMS}")


class AskedRating(NamedTuple):
    """A user whose items are asked for, or a user and an item whose rating is."""

    user: str
    item: str | None = None


def asked_ratings(inputs: str, field: str | None, users: Container[str]) -> list[AskedRating] | None:
    """Return the users, and items if there, of a table, whose ratings may be missing; None for other inputs.

    A file whose name does not say that it is a table is one where a rating stands in each of its first rows.
    """
    path = Path(inputs)
    if not os.path.isfile(inputs):
        return None
    is_named = format_of(path) in TABLES
    rows = list(table_rows(path)) if is_named or _has_ratings(path) else []
    if not rows:
        return None
    names = [name.strip() for name in (field or COLUMNS).split(",")][:2]
    first = rows[0].cells
    is_header = names[0] in first if field else _is_header(first, users)
    if field and not is_header:
        raise DataError(f"{rows[0].where}: no column {names[0]!r}; there are: {', '.join(first)}")
    places = [first.index(name) for name in names if name in first] if field else [0, 1][: len(first)]
    return [_asked(row, places) for row in rows[is_header:]]


def _has_ratings(path: Path) -> bool:
    first = list(islice(table_rows(path), 2))
    return any(len(row.cells) > 2 and _is_number(row.cells[2]) for row in first)


def _is_header(first: Sequence[str], users: Container[str]) -> bool:
    """Return whether a first row holds names: of three columns as in training, of fewer by the word user."""
    if len(first) > 2:
        return not _is_number(first[2])
    return first[0].strip() not in users and first[0].strip().lower().startswith("user")


def _asked(row: TableRow, places: Sequence[int]) -> AskedRating:
    if len(row.cells) <= max(places):
        raise DataError(f"{row.where}: {len(row.cells)} cells, but the item is cell {max(places) + 1}")
    return AskedRating(*(row.cells[place].strip() for place in places))


class TableRow(NamedTuple):
    """The cells of a row, and where it was read."""

    cells: list[str]
    where: str


def table_rows(path: Path) -> Iterator[TableRow]:
    """Yield the rows of a table, without empty ones; its delimiter is found in its first line."""
    try:
        with open_text(path, find_encoding(path)) as file:
            delimiter = next((one for one in DELIMITERS if one in file.readline()), ",")
            file.seek(0)
            lines = (line.replace("::", "\t") for line in file) if delimiter == "::" else file
            is_bare = delimiter in ("\t", "::")  # there a quote is a part of a name
            quoting: Literal[0, 3] = csv.QUOTE_NONE if is_bare else csv.QUOTE_MINIMAL
            rows = csv.reader(lines, delimiter="\t" if delimiter == "::" else delimiter, quoting=quoting, strict=True)
            yield from (TableRow(row, f"{path}, line {rows.line_num}") for row in rows if row)
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not a table that can be read ({error})") from error
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); take another copy") from error


def _places(first: TableRow, field: str | None) -> tuple[list[int], bool]:
    """Return the places of user, item and rating, and whether the first row holds the columns' names."""
    if field is None:
        if len(first.cells) < 3:
            raise DataError(f"{first.where}: {len(first.cells)} cells, expected 3: {COLUMNS}")
        return [0, 1, 2], not _is_number(first.cells[2])
    names = [name.strip() for name in field.split(",")]
    if len(names) != 3:
        raise DataError(f"field: got {field!r}, expected three columns; write --set field={COLUMNS}")
    for name in names:
        if name not in first.cells:
            there = ", ".join(first.cells)
            raise DataError(f"{first.where}: no column {name!r}; there are: {there}{nearest(name, first.cells)}")
    return [first.cells.index(name) for name in names], True


def _rating(row: TableRow, places: Sequence[int]) -> RatingRow:
    if len(row.cells) <= max(places):
        raise DataError(f"{row.where}: {len(row.cells)} cells, but the rating is cell {max(places) + 1}")
    user, item, value = (row.cells[place].strip() for place in places)
    if not user or not item:
        raise DataError(f"{row.where}: the {'item' if user else 'user'} is empty; name it or remove the row")
    if not _is_number(value):
        raise DataError(f"{row.where}: the rating {value!r} is no number; name the columns with --set field={COLUMNS}")
    return RatingRow(user, item, float(value), row.where)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
