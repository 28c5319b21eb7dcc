"""One file to documents: plain text (one document), .jsonl, .csv and .tsv (one document a row)."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from recollect.data.error import DataError
from recollect.data.text.encoding import UNREADABLE, open_text

CHUNK = 1 << 20  # characters read at a time
FIELD_LIMIT = 1 << 26  # characters in a cell of a table: more means an unclosed quote
TABLES = {"csv": ",", "tsv": "\t"}


class Chunk(NamedTuple):
    """Some text, and whether a document ends after it."""

    text: str
    ends: bool


def format_of(path: Path) -> str:
    """Return 'jsonl', 'csv', 'tsv' or 'text' by the file's name, ignoring .gz."""
    name = path.name.lower().removesuffix(".gz")
    suffix = name.rpartition(".")[2]
    return suffix if suffix in ("jsonl", "csv", "tsv") else "text"


def fields_of(path: Path, encoding: str) -> list[str] | None:
    """Return the fields of a table's first row or of a .jsonl's first object; None for other files."""
    kind = format_of(path)
    if kind == "text":
        return None
    with open_text(path, encoding) as file:
        line = next((line for line in file if line.strip()), "")
    if kind in TABLES:
        return next(csv.reader([line], delimiter=TABLES[kind]), [])
    try:
        row = json.loads(line)
    except ValueError:  # whoever reads it names the line
        return None
    return list(row) if isinstance(row, dict) else None


def check_field(path: Path, encoding: str, field: str) -> None:
    """Raise a DataError for a table, or a .jsonl, without the field that holds the text."""
    fields = fields_of(path, encoding)
    if fields is not None and field not in fields:
        raise _missing(path, 1, field, fields)


def read_chunks(path: Path, encoding: str, field: str) -> Iterator[Chunk]:
    """Yield a file's text in chunks of bounded size; the document of a row is one chunk."""
    kind = format_of(path)
    try:
        with open_text(path, encoding) as file:
            if kind == "text":
                yield from _plain(file)
            elif kind == "jsonl":
                yield from _rows(_json_rows(file, path, field))
            else:
                yield from _rows(_table_rows(file, path, field, TABLES[kind]))
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); take another copy") from error


def _plain(file: TextIO) -> Iterator[Chunk]:
    rest = file.read(CHUNK)
    while rest:
        following = file.read(CHUNK)  # one chunk ahead, to know whether the document ends
        cut = _cut(rest) if following else len(rest)
        yield Chunk(rest[:cut], not following)
        rest = rest[cut:] + following


def _cut(text: str) -> int:
    """Return where no symbol is divided: after the last line end, else before the last word, else at the end."""
    line = text.rfind("\n") + 1
    blank = text.rfind(" ", 1, -1)
    while blank > 0 and text[blank + 1].isspace():
        blank = text.rfind(" ", 1, blank)
    return line or max(blank, 0) or len(text)


def _rows(rows: Iterable[str]) -> Iterator[Chunk]:
    """Yield each row as a document that ends with a line end, so that models can learn where a row ends."""
    for row in rows:
        if row:
            yield Chunk(row if row.endswith("\n") else row + "\n", True)


def _json_rows(file: TextIO, path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error}); .jsonl has one JSON object a line") from error
        where = f"{path}, line {number}"
        if not isinstance(row, dict):
            raise DataError(f"{where}: a {type(row).__name__}, not an object like {{{json.dumps(field)}: …}}")
        if field not in row:
            raise _missing(path, number, field, row)
        if not isinstance(row[field], str):
            raise DataError(f"{where}: field {field!r} is a {type(row[field]).__name__}, not a string")
        yield row[field]


def _missing(path: Path, number: int, field: str, there: Iterable[str]) -> DataError:
    names = list(there)
    advice = f"; choose one, as in --set field={shlex.quote(names[0])}" if names else ""
    return DataError(f"{path}, line {number}: no field {field!r}; there are: {', '.join(names) or 'none'}{advice}")


def _table_rows(file: TextIO, path: Path, field: str, delimiter: str) -> Iterator[str]:
    csv.field_size_limit(FIELD_LIMIT)  # the default limit is 128 kB, less than a long document
    rows = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        if field not in header:
            raise _missing(path, 1, field, header)
        column = header.index(field)
        for row in rows:
            if not row:
                continue
            if len(row) <= column:
                raise DataError(f"{path}, line {rows.line_num}: {len(row)} cells, but {field!r} is cell {column + 1}")
            yield row[column]
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not a table that can be read ({error})") from error
