"""Where words with tags come from: CoNLL, CoNLL-U, .jsonl with two lists, two files of lines, or a built-in.

Errors name the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.data.error import DataError
from recollect.data.labels.label_files import Column, _side_by_side, existing, json_rows, lines_of_file, missing
from recollect.data.labels.tag_schemes import UNTAGGED
from recollect.data.synthetic.label_generators import LABEL_TASKS, generated_tags
from recollect.data.text.formats import format_of

UD_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class TaggedWords(NamedTuple):
    """The words of one sequence, their tags, and where it was read."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str


def read_tagged(data: str, text: Column = None, label: Column = None) -> Iterator[TaggedWords]:
    """Yield the sequences of DATA; `text` and `label` name or number the columns of words and tags.

    By default the first and the last column of CoNLL, form and upos of CoNLL-U, and the lists words and tags of .jsonl.
    """
    name = data.partition(":")[0]
    if name in LABEL_TASKS and LABEL_TASKS[name].task == "tag":
        yield from (TaggedWords(*one, where=f"{data}, {i}") for i, one in enumerate(generated_tags(data), 1))
    elif not Path(data).is_file() and data.count(",") == 1:
        for words, tags, where in _side_by_side(*(existing(part) for part in data.split(","))):
            yield _paired(words.split(), tags.split(), where)
    elif format_of(existing(data)) == "jsonl":
        for number, row in json_rows(Path(data)):
            yield _of_lists(row, text or "words", label or "tags", f"{data}, line {number}")
    elif is_conllu(data):
        yield from _universal(Path(data), text or "form", label or "upos")
    else:
        yield from _columns(Path(data), text or 1, label)


def read_words(path: Path, text: Column = None) -> Iterator[TaggedWords]:
    """Yield the words of CoNLL, untagged: a column of tags may be missing."""
    yield from _columns(path, text or 1, None, has_tags=False)


def read_lists(path: Path, text: Column = None) -> Iterator[TaggedWords]:
    """Yield the words of .jsonl, a list in each row, untagged."""
    for number, row in json_rows(path):
        where = f"{path}, line {number}"
        words = _list_of(row, text or "words", where)
        yield _paired(words, [UNTAGGED] * len(words), where)


def has_tags(path: Path, label: Column, is_tag: Callable[[str], bool]) -> bool:
    """Return whether every line of a file is a word with its columns, of which the one of tags holds a tag."""
    widths = set()
    for _, line in lines_of_file(path):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or cells[0] == "-DOCSTART-":
            continue
        widths.add(len(cells))
        place = label if isinstance(label, int) else len(cells)
        if len(widths) > 1 or not 2 <= place <= len(cells) or not is_tag(cells[place - 1].strip()):
            return False
    return bool(widths)


def is_conllu(data: str) -> bool:
    """Return whether a file is CoNLL-U by its name."""
    return data.lower().removesuffix(".gz").endswith(".conllu")


def is_tag_file(data: str) -> bool:
    """Return whether a file holds tags by its name."""
    return is_conllu(data) or data.lower().removesuffix(".gz").endswith((".conll", ".iob", ".bio"))


def _paired(words: Sequence[str], tags: Sequence[str], where: str) -> TaggedWords:
    if len(words) != len(tags):
        raise DataError(f"{where}: got {len(words)} words and {len(tags)} tags, expected one tag for each word")
    if not words:
        raise DataError(f"{where}: no words; remove the line, or give it words")
    return TaggedWords(tuple(words), tuple(tags), where)


def _of_lists(row: dict[str, object], text: Column, label: Column, where: str) -> TaggedWords:
    return _paired(_list_of(row, text, where), _list_of(row, label, where), where)


def _list_of(row: dict[str, object], column: Column, where: str) -> list[str]:
    """Return a list of words or tags; a number is one as it is written, null and true are none."""
    if column not in row:
        raise missing(where, str(column), list(row))
    found = row[str(column)]
    if not isinstance(found, list):
        raise DataError(f"{where}: field {column!r} is a {type(found).__name__}, not a list")
    for place, one in enumerate(found, 1):
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            got = f"{where}: item {place} of {column!r} is {json.dumps(one)[:40]}"
            raise DataError(f"{got}, expected a string or a number; mend it, or remove the row")
    return [str(one) for one in found]


def _columns(path: Path, text: Column, label: Column, *, has_tags: bool = True) -> Iterator[TaggedWords]:
    """Yield the sequences of CoNLL: a word a line, blank lines between sequences, columns by tabs or blanks."""
    words: list[str] = []
    tags: list[str] = []
    begun, width = 1, 0
    for number, line in lines_of_file(path):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or cells[0] == "-DOCSTART-":
            if words:
                yield TaggedWords(tuple(words), tuple(tags), f"{path}, line {begun}")
            words, tags, begun = [], [], number + 1
            continue
        place = _place(label, len(cells), len(cells), f"{path}, line {number}")
        if has_tags and (len(cells) < 2 or not cells[place].strip()):
            raise DataError(f"{path}, line {number}: {len(cells)} cells, expected a word and its tag")
        width = width or len(cells)
        if len(cells) != width:  # its last cell may be another column's
            got = f"{path}, line {number}: {len(cells)} cells, but the first line has {width}"
            raise DataError(f"{got}; a line is a word and its columns; mend the line, or remove a comment")
        words.append(cells[_place(text, 1, len(cells), f"{path}, line {number}")].strip() or UNTAGGED)
        tags.append(cells[place].strip() if has_tags else UNTAGGED)
    if words:
        yield TaggedWords(tuple(words), tuple(tags), f"{path}, line {begun}")


def _place(column: Column, usual: int, cells: int, where: str) -> int:
    number = usual if column is None else column
    if not isinstance(number, int) or not 1 <= number <= cells:
        raise missing(where, str(column), [str(i + 1) for i in range(cells)])
    return number - 1


def _universal(path: Path, text: Column, label: Column) -> Iterator[TaggedWords]:
    """Yield the sentences of CoNLL-U; ranges (1-2) and empty nodes (1.1) are left out."""
    for column in (text, label):
        if column not in UD_COLUMNS:
            raise missing(str(path), str(column), list(UD_COLUMNS))
    places = [UD_COLUMNS.index(str(column)) for column in (text, label)]
    words: list[tuple[str, str]] = []
    begun = 1
    for number, line in [*lines_of_file(path), (0, "")]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if words:
                forms, tags = zip(*words, strict=True)
                yield TaggedWords(forms, tags, f"{path}, line {begun}")
            words, begun = [], number + 1
            continue
        cells = line.split("\t")
        if len(cells) != len(UD_COLUMNS):
            raise DataError(f"{path}, line {number}: {len(cells)} cells, expected the 10 of CoNLL-U, divided by tabs")
        if cells[0].isdecimal():
            words.append((cells[places[0]], cells[places[1]]))
