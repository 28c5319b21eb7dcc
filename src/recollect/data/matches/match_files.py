"""Where questions come from: tables and .jsonl with named columns, and built-ins. Errors name the file and the line.

text, query, answer: the answer stands in the text.   query, text, label: texts with the same query are candidates of
one question, and those with the label 1 are right.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from recollect.data.error import DataError, did_you_mean
from recollect.data.labels.label_files import json_rows, numbered_rows
from recollect.data.synthetic.match_generators import MATCH_TASKS, Question, generated_questions
from recollect.data.text.formats import TABLES, format_of

FORMS = (
    "a .csv, .tsv or .jsonl with columns text, query and answer, or query, text and label (1: right, 0: wrong), or a "
    "built-in"
)
LABELS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}


class Columns(NamedTuple):
    """The names of the columns."""

    text: str = "text"
    query: str = "query"
    answer: str = "answer"
    label: str = "label"


def read_questions(data: str, columns: Columns = Columns()) -> Iterator[Question]:  # noqa: B008, it is immutable
    """Yield the questions of DATA."""
    if data.partition(":")[0] in MATCH_TASKS:
        yield from generated_questions(data)
        return
    path = Path(data)
    if not path.is_file():
        near = did_you_mean(path, MATCH_TASKS)
        raise DataError(f"{data}: no such file{near}; questions are {FORMS}: {', '.join(MATCH_TASKS)}")
    rows = list(_rows(path))
    if rows and columns.answer in rows[0][1]:
        yield from _pointed(path, rows, columns)
    else:
        yield from _ranked(path, rows, columns)


def asked_questions(inputs: str, columns: Columns, *, points: bool) -> list[Question] | None:
    """Return the questions of a table, of whose columns that of answers or labels may be missing.

    None for other inputs: lines, and a table without a column of queries.
    """
    path = Path(inputs)
    if not os.path.isfile(inputs) or format_of(path) not in (*TABLES, "jsonl"):
        return None
    found: list[tuple[str, str, str]] = []
    for number, row in _rows(path):
        if columns.query not in row:
            return None
        where = f"{path}, line {number}"
        found.append((_cell(row, columns.query, where), _cell(row, columns.text, where), where))
    if points:
        return [Question(query, (text,), "", (), where) for query, text, where in found]
    groups: dict[str, list[str]] = {}
    for query, text, _ in found:
        groups.setdefault(query, []).append(text)
    places = {query: where for query, _, where in reversed(found)}  # where it first occurs
    return [Question(query, tuple(own), None, (False,) * len(own), places[query]) for query, own in groups.items()]


def find_questions(data: str) -> None:
    """Raise a DataError where there is neither such a file nor such a built-in."""
    if data.partition(":")[0] not in MATCH_TASKS and not Path(data).is_file():
        next(read_questions(data))


Row = tuple[int, dict[str, str]]


def _pointed(path: Path, rows: Iterable[Row], columns: Columns) -> Iterator[Question]:
    for number, row in rows:
        where = f"{path}, line {number}"
        text, query, answer = (_cell(row, name, where) for name in (columns.text, columns.query, columns.answer))
        yield Question(query, (text,), answer, (), where)


def _ranked(path: Path, rows: Iterable[Row], columns: Columns) -> Iterator[Question]:
    """Yield a question for each query, in the order in which they first occur."""
    groups: dict[str, list[tuple[str, bool]]] = {}
    places: dict[str, int] = {}
    for number, row in rows:
        where = f"{path}, line {number}"
        query, text, label = (_cell(row, name, where) for name in (columns.query, columns.text, columns.label))
        if label.lower() not in LABELS:
            raise DataError(f"{where}: label {label!r}, expected 1 (right) or 0 (wrong)")
        groups.setdefault(query, []).append((text, LABELS[label.lower()]))
        places.setdefault(query, number)
    for query, found in groups.items():
        where = f"{path}, line {places[query]}"
        if not any(right for _, right in found):
            raise DataError(f"{where}: none of the {len(found)} texts of {query[:40]!r} is right; remove the query")
        if len(found) > 1 and all(right for _, right in found):
            got = f"{where}: all {len(found)} texts of {query[:40]!r} are right"
            raise DataError(f"{got}; add wrong ones, with label 0, or remove the query")
        if len(found) < 2:
            raise DataError(f"{where}: the query {query[:40]!r} has one text; add wrong ones, with label 0")
        texts, right = zip(*found, strict=True)
        yield Question(query, texts, None, right, where)


def _cell(row: dict[str, str], name: str, where: str) -> str:
    if name not in row:
        names = ", ".join(row) or "none"
        raise DataError(
            f"{where}: no column {name!r}; there are: {names}; name them with --set text=NAME --set query=NAME "
            "--set answer=NAME, or --set label=NAME"
        )
    if not row[name].strip():
        raise DataError(f"{where}: the {name} is empty; remove the row, or fill it")
    return row[name].strip()


def _text_of(value: object, name: str, where: str) -> str:
    """Return a field of .jsonl as text; null is empty, which is refused where the field is read."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise DataError(f"{where}: field {name!r} is a {type(value).__name__}, not a string")
    return str(int(value) if isinstance(value, bool) else value)


def _rows(path: Path) -> Iterator[Row]:
    kind = format_of(path)
    if kind == "jsonl":
        for number, found in json_rows(path):
            yield number, {name: _text_of(value, name, f"{path}, line {number}") for name, value in found.items()}
        return
    if kind not in TABLES:
        raise DataError(f"{path}: not a table; questions are {FORMS}")
    lines = numbered_rows(path)
    names = lines[0][1] if lines else []
    for number, row in lines[1:]:
        if len(row) != len(names):
            raise DataError(f"{path}, line {number}: {len(row)} cells, but the first line has {len(names)}")
        yield number, dict(zip(names, row, strict=True))
