"""Where texts with labels come from: tables, .jsonl, lines that begin with their label, folders by label, two files.

Errors name the file and the line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from recollect.data.error import DataError, did_you_mean
from recollect.data.synthetic.label_generators import LABEL_TASKS, generated_texts
from recollect.data.text.encoding import UNREADABLE, find_encoding, numbered_lines, open_text
from recollect.data.text.formats import FIELD_LIMIT, TABLES, format_of

FASTTEXT = "__label__"
FORMS = (
    "a .csv, .tsv or .jsonl with columns text and label, a file of lines that begin with their label, "
    "a folder with a folder or a .txt for each label, two files as words,labels, or a built-in"
)

Column = str | int | None  # a column's name, or its number from 1 in a table without names


class LabelledText(NamedTuple):
    """One text, its label, and where it was read."""

    text: str
    label: str
    where: str


def read_texts(data: str, text: Column = None, label: Column = None) -> Iterator[LabelledText]:
    """Yield the texts of DATA with their labels; `text` and `label` name the columns of a table or of .jsonl."""
    name = data.partition(":")[0]
    if name in LABEL_TASKS and LABEL_TASKS[name].task == "classify":
        yield from (LabelledText(*one, where=f"{data}, {i}") for i, one in enumerate(generated_texts(data), 1))
        return
    path = Path(data)
    if path.is_dir():
        found = _folders(path)
    elif not path.is_file() and data.count(",") == 1:
        found = _side_by_side(*(existing(part) for part in data.split(",")))
    else:
        kind = format_of(existing(data))
        readers = {"jsonl": _objects, "csv": _table, "tsv": _table}
        found = readers[kind](path, text, label) if kind in readers else _label_first(path)
    for one in found:
        if not one.text.strip():
            raise DataError(f"{one.where}: the text is empty; remove the row, or give it a text")
        if not one.label.strip():
            raise DataError(f"{one.where}: the label is empty; remove the row, or give it a label")
        yield LabelledText(one.text, one.label.strip(), one.where)


def find_texts(data: str) -> None:
    """Raise a DataError where a name of DATA stands for nothing; files are not opened."""
    if data.partition(":")[0] not in LABEL_TASKS and not Path(data).is_dir():
        for name in data.split(",") if not Path(data).is_file() and data.count(",") == 1 else [data]:
            existing(name)


def existing(name: str) -> Path:
    """Return a file's path; raise a DataError where there is none, with the nearest name."""
    path = Path(name)
    if not path.is_file():
        problem = "a folder" if path.is_dir() else f"no such file or folder{did_you_mean(path, LABEL_TASKS)}"
        raise DataError(f"{name}: {problem}; labelled data are {FORMS}: {', '.join(LABEL_TASKS)}")
    return path


def lines_of_file(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's lines, numbered from 1."""
    return numbered_lines(path, find_encoding(path))


def _label_first(path: Path) -> Iterator[LabelledText]:
    for number, line in lines_of_file(path):
        if line.strip():
            label, _, text = line.strip().partition(" ")
            if "\t" in label:
                label, _, text = line.strip().partition("\t")
            if not text.strip():
                raise DataError(f"{path}, line {number}: the text is empty; a line is a label, a blank and a text")
            yield LabelledText(text, label.removeprefix(FASTTEXT), f"{path}, line {number}")


def _side_by_side(texts: Path, labels: Path) -> Iterator[LabelledText]:
    for one, other in zip_longest(lines_of_file(texts), lines_of_file(labels)):
        if one is None or other is None:
            longer, shorter = (texts, labels) if other is None else (labels, texts)
            raise DataError(f"{longer}, line {(one or other)[0]}: no such line in {shorter}; line 1 belongs to line 1")
        yield LabelledText(one[1], other[1], f"{texts}, line {one[0]}")


def _folders(folder: Path) -> Iterator[LabelledText]:
    """Yield each file as one text; its folder's name is the label. Without folders: each line of a .txt of its name."""
    labels = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not labels:
        named = sorted(path for path in folder.glob("*.txt") if path.is_file())
        if len(named) < 2:
            expected = "expected one for each label, with a file for each text, or LABEL.txt with a text on each line"
            raise DataError(f"{folder}: a folder without folders; {expected}")
        for path in named:
            for number, line in lines_of_file(path):
                if line.strip():
                    yield LabelledText(line.strip(), path.stem, f"{path}, line {number}")
    for label in labels:
        for path in sorted(path for path in label.rglob("*") if path.is_file() and not path.name.startswith(".")):
            with open_text(path, find_encoding(path)) as file:
                yield LabelledText(file.read(), label.name, str(path))


# ---- tables ------------------------------------------------------------------------------------------


def _objects(path: Path, text: Column, label: Column) -> Iterator[LabelledText]:
    for number, row in json_rows(path):
        where = f"{path}, line {number}"
        values = []
        for column in (text or "text", label or "label"):
            if column not in row:
                raise missing(where, str(column), list(row))
            value = row[column]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not isinstance(value, str) and (not is_number or column == (text or "text")):
                got = f"{where}: field {column!r} is {json.dumps(value)[:40]}"
                raise DataError(f"{got}, expected a string{'' if column == (text or 'text') else ' or a number'}")
            values.append(str(value))
        yield LabelledText(values[0], values[1], where)


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a .jsonl with the number of their lines."""
    for number, line in lines_of_file(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error}); .jsonl has one JSON object a line") from error
        if not isinstance(row, dict):
            raise DataError(f'{path}, line {number}: a {type(row).__name__}, not an object like {{"text": …}}')
        yield number, row


def missing(where: str, column: str, there: list[str]) -> DataError:
    """Return the error of a column that is not there."""
    names = ", ".join(there) or "none"
    return DataError(
        f"{where}: no column {column!r}; there are: {names}; name them with --set text=NAME --set label=NAME"
    )


def numbered_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows of a .csv or .tsv, each with the number of its line; in a .tsv nothing is quoted."""
    csv.field_size_limit(FIELD_LIMIT)  # the default limit is 128 kB, less than a long text
    kind = format_of(path)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if kind == "csv" else csv.QUOTE_NONE
    with open_text(path, find_encoding(path)) as file:
        reader = csv.reader(file, delimiter=TABLES[kind], quoting=quoting, strict=True)
        try:
            return [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: not a table that can be read ({error})") from error
        except UNREADABLE as error:
            raise DataError(f"{path}: cannot be read to its end ({error}); take another copy") from error


def _table(path: Path, text: Column, label: Column) -> Iterator[LabelledText]:
    rows = numbered_rows(path)
    places, is_header = _places(path, [row for _, row in rows], text, label)
    for number, row in rows[is_header:]:
        if len(row) != len(rows[0][1]):  # a comma in a text without quotes would make the next words its label
            got = f"{path}, line {number}: {len(row)} cells, but the first line has {len(rows[0][1])}"
            raise DataError(f"{got}; mend the row, in .csv with quotes around a text that holds a comma")
        yield LabelledText(row[places[0]], row[places[1]], f"{path}, line {number}")


def _places(path: Path, rows: list[list[str]], text: Column, label: Column) -> tuple[list[int], bool]:
    """Return the places of text and label, and whether the first row holds names.

    It holds none where columns are given by number, nor in a table of two columns whose first label occurs again.
    """
    first = rows[0] if rows else []
    if isinstance(text, int) and isinstance(label, int):
        if not 1 <= min(text, label) <= max(text, label) <= len(first):
            raise missing(f"{path}, line 1", f"{text} and {label}", [str(i + 1) for i in range(len(first))])
        return [text - 1, label - 1], False
    if text is None and label is None and len(first) == 2 and any(row[1:] == first[1:] for row in rows[1:]):
        return [0, 1], False
    names = [str(text or "text"), str(label or "label")]
    for name in names:
        if name not in first:
            raise missing(f"{path}, line 1", name, first)
    return [first.index(name) for name in names], True
