"""What a run on labels is asked about, in files that it can be trained on: their texts or words, without labels.

A file of lines and typed words are no such files: `input_lines` reads those.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from recollect.data.error import DataError
from recollect.data.labels.label_files import (
    FASTTEXT,
    Column,
    LabelledText,
    json_rows,
    lines_of_file,
    missing,
    numbered_rows,
    read_texts,
)
from recollect.data.labels.tag_files import (
    TaggedWords,
    has_tags,
    is_conllu,
    is_tag_file,
    read_lists,
    read_tagged,
    read_words,
)
from recollect.data.labels.tag_schemes import UNTAGGED, is_of_span
from recollect.data.text.encoding import find_encoding
from recollect.data.text.formats import TABLES, fields_of, format_of
from recollect.data.text.input_lines import COLUMNS, find_column


def asked_texts(inputs: str, text: Column, names: Sequence[str]) -> list[LabelledText] | None:
    """Return the texts of a table, a folder, two files or lines that begin with a label; None for other inputs.

    The label of each is empty: its column may be missing. By `names`, the labels of the run, labels are known.
    """
    path = Path(inputs)
    if (os.path.isdir(inputs) and any(path.iterdir())) or _is_pair(inputs):
        return [one._replace(label="") for one in read_texts(inputs)]
    if not os.path.isfile(inputs):  # not Path.is_file, which raises for words longer than a name may be
        return None
    if format_of(path) == "jsonl":
        return list(_of_objects(path, text))
    if format_of(path) in TABLES:
        return list(_of_table(path, text, names))
    return _of_lines(path, names)


def asked_words(
    inputs: str, text: Column, label: Column, names: Sequence[str], scheme: str | None
) -> list[TaggedWords] | None:
    """Return the words of CoNLL, CoNLL-U, .jsonl with lists or two files, untagged; None for other inputs.

    Whatever its name, a file is CoNLL where each of its lines is a word with its columns and a tag of the run.
    """
    path = Path(inputs)
    if _is_pair(inputs) or (os.path.isfile(inputs) and is_conllu(inputs)):
        rows = read_tagged(inputs, text, label)
        return [one._replace(tags=(UNTAGGED,) * len(one.words)) for one in rows]
    if not os.path.isfile(inputs):
        return None
    fields = fields_of(path, find_encoding(path)) or []
    if format_of(path) == "jsonl":
        return list(read_lists(path, text)) if str(text or "words") in fields else None
    if any(name in fields for name in COLUMNS):
        return None
    known = {*names, UNTAGGED}
    is_columns = has_tags(path, label, lambda tag: tag in known or (scheme is not None and is_of_span(tag)))
    is_named = is_tag_file(inputs) or format_of(path) == "tsv"
    return list(read_words(path, text)) if is_named or is_columns else None


def _is_pair(inputs: str) -> bool:
    """Return whether inputs are two files with a comma between them."""
    parts = inputs.split(",")
    return len(parts) == 2 and not os.path.isfile(inputs) and all(os.path.isfile(part) for part in parts)


def _of_objects(path: Path, text: Column) -> Iterator[LabelledText]:
    for number, row in json_rows(path):
        where = f"{path}, line {number}"
        column = find_column(where, list(row), None if text is None else str(text))
        if not isinstance(row[column], str):
            raise DataError(f"{where}: field {column!r} is {json.dumps(row[column])[:40]}, expected a string")
        yield LabelledText(str(row[column]), "", where)


def _of_table(path: Path, text: Column, names: Sequence[str]) -> Iterator[LabelledText]:
    rows = numbered_rows(path)
    first = rows[0][1] if rows else []
    labels = {row[1] for _, row in rows[1:] if len(row) == 2}
    is_bare = text is None and len(first) == 2 and (first[1] in labels or first[1] in names)
    if isinstance(text, int) or is_bare:
        place, is_header = int(text or 1) - 1, False
    else:
        place, is_header = first.index(find_column(str(path), first, text)), True
    if place >= len(first):
        raise missing(f"{path}, line 1", str(text), [str(i + 1) for i in range(len(first))])
    for number, row in rows[is_header:]:
        if len(row) != len(first):
            raise DataError(f"{path}, line {number}: {len(row)} cells, but the first line has {len(first)}; mend it")
        yield LabelledText(row[place], "", f"{path}, line {number}")


def _of_lines(path: Path, names: Sequence[str]) -> list[LabelledText] | None:
    """Return the texts of lines that all begin with __label__, or with a label of the run and a tab; else None.

    A label that only a blank follows may be a word of the text.
    """
    rows = []
    for number, line in lines_of_file(path):
        if not line.strip():
            continue
        is_marked = line.startswith(FASTTEXT) and "\t" not in line
        label, _, text = line.strip().partition(" " if is_marked else "\t")
        if not is_marked and (not text or label.removeprefix(FASTTEXT) not in names):
            return None
        rows.append(LabelledText(text, "", f"{path}, line {number}"))
    return rows or None
