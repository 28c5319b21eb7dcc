"""A table of numbers: .csv or .tsv, plain or gzipped, to columns; what is wrong is named with its row and column."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recollect.core.errors import nearest
from recollect.data.error import DataError, did_you_mean
from recollect.data.text.encoding import UNREADABLE, find_encoding, open_text

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}  # cells without a value, in lower case
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
LARGEST = 1e30  # of a number: its square still fits in double precision, its deviation in single precision
SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class NumberTable:
    """The cells of a table as text, with the row of the file that each line comes from (the header is row 1)."""

    source: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    rows: tuple[int, ...]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column; raise for a name that the header does not have, with the nearest one."""
        return [line[self.place(name)] for line in self.lines]

    def place(self, name: str) -> int:
        """Return the place of a column."""
        if name not in self.header:
            columns = ", ".join(self.header)
            raise DataError(
                f"{self.source}: row 1: there is no column {name!r}{nearest(name, self.header)}; its columns are "
                f"{columns}"
            )
        return self.header.index(name)

    def numbers(self, name: str) -> list[float]:
        """Return a column as numbers, NaN where a cell is empty; raise for text and for infinities."""
        return [self._number(row, name, text) for row, text in zip(self.rows, self.column(name), strict=True)]

    def _number(self, row: int, name: str, text: str) -> float:
        if text.lower() in MISSING:
            return math.nan
        try:
            value = float(text)
        except ValueError:
            value = math.inf
            is_comma = DECIMAL_COMMA.fullmatch(text) is not None
            problem = "expected a number, or an empty cell where there is none"
            problem = "expected a decimal point, as in 1.5" if is_comma else problem
        else:
            problem = "expected a finite number, or an empty cell where there is none"
            if math.isfinite(value) and abs(value) > LARGEST:
                value, problem = math.inf, f"expected at most {LARGEST:.0e}, as models compute in single precision"
        if not math.isfinite(value):
            raise DataError(
                f"{self.source}: row {row}, column {name!r}: got {text!r}, {problem}; mend the cell, or choose other "
                "columns with --set target=NAME"
            )
        return value

    def has_decimal_commas(self, name: str) -> bool:
        """Return whether most cells of a column are numbers with a decimal comma."""
        cells = self.column(name)
        return sum(DECIMAL_COMMA.fullmatch(text) is not None for text in cells) > len(cells) / 2

    def is_numeric(self, name: str) -> bool:
        """Return whether a column has a number, and at most a few cells of text that are mistakes."""
        cells = [text for text in self.column(name) if text.lower() not in MISSING]
        numeric = sum(_is_number(text) for text in cells)
        return numeric > len(cells) / 2


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+|inf|infinity)(e[-+]?\d+)?", text.strip().lower()) is not None


def read_number_table(source: str) -> NumberTable:
    """Read a table from a file or from standard input (-)."""
    if source == "-":
        return _parse(sys.stdin.read(), "standard input")
    find_numbers(source)
    path = Path(source)
    encoding = find_encoding(path)
    try:
        with open_text(path, encoding) as file:
            return _parse(file.read(), source)
    except UNREADABLE as error:
        raise DataError(f"{source}: cannot be read to its end ({error}); take another copy") from error


def find_numbers(source: str) -> None:
    """Raise a DataError where a name is neither a file nor standard input (-); a file is not opened."""
    path = Path(source)
    if source != "-" and not path.is_file():
        problem = "a folder, expected a table of numbers" if path.is_dir() else "no such file"
        raise DataError(f"{source}: {problem}{did_you_mean(path)}; give a .csv file with a header")


def _parse(text: str, source: str) -> NumberTable:
    first = text.partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    numbered = _rows(text, separator, source)
    _, header = next(numbered, (1, ()))
    if not header:
        raise DataError(f"{source}: no rows; expected a header and a row for each time")
    if all(_is_number(name) for name in header):
        raise DataError(f"{source}: row 1: got numbers, expected a header with the names of the columns; add one")
    doubled = next((name for name in header if header.count(name) > 1), None)
    if doubled is not None:
        raise DataError(f"{source}: row 1: the column {doubled!r} occurs twice; give each column its own name")
    lines, rows = [], []
    for row, cells in numbered:
        if len(cells) != len(header):
            raise DataError(
                f"{source}: row {row}: got {len(cells)} cells, expected {len(header)} as in the header; mend the row"
            )
        lines.append(cells)
        rows.append(row)
    if not lines:
        raise DataError(f"{source}: a header and no rows; expected a row for each time")
    return NumberTable(source, header, tuple(lines), tuple(rows))


def _rows(text: str, separator: str, source: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the rows that are not blank, each with the line of the file on which it ends."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, tuple(cell.strip() for cell in cells)
    except csv.Error as error:
        raise DataError(f"{source}: row {reader.line_num}: not a table ({error}); mend the row") from error
