"""The lines that a model is asked about: words as they are typed, a file of lines or a column of a table."""

from __future__ import annotations

import os
from pathlib import Path

from recollect.data.error import DataError
from recollect.data.text.encoding import find_encoding
from recollect.data.text.formats import fields_of, format_of
from recollect.data.text.source import open_source, to_stderr

ENDINGS = (".txt", ".tsv", ".csv", ".jsonl", ".gz")
COLUMNS = ("text", "source")  # of a table: the first that is there
ADVICE = "give a file of lines, -, or the words themselves"


def lines_of(words: str) -> list[str]:
    """Return the lines of a file or of standard input (`-`), or the words themselves.

    What can only be a file's name, one word with a known ending or a folder before it, is refused where there is none.
    A table has one text a row, in the column text or source; line ends within it become blanks.
    """
    if os.path.isdir(words):  # not Path.is_dir, which raises for words longer than a name may be
        raise DataError(f"{words}: a folder; {ADVICE}")
    if words != "-" and not os.path.isfile(words):
        is_name = len(words.split()) == 1 and (words.endswith(ENDINGS) or Path(words).parent != Path())
        if is_name:
            raise DataError(f"{words}: there is no such file; {ADVICE}")
        return [words]
    lines = _lines_in(words)
    if not lines:
        raise DataError(f"{words}: no lines; {ADVICE}")
    return lines


def _lines_in(words: str) -> list[str]:
    """Return the lines of a text, which only line feeds end, or a line for each row of a table."""
    is_table = format_of(Path(words)) != "text"
    column = _column_of(words) if is_table else "text"
    with open_source(words, field=column, notify=to_stderr) as source:
        if is_table:
            return [" ".join(chunk.text.splitlines()) for chunk in source.chunks()]
        text = "".join(chunk.text for chunk in source.chunks())
    return text.removesuffix("\n").split("\n") if text else []


def _column_of(name: str) -> str:
    fields = fields_of(Path(name), find_encoding(Path(name))) or []
    column = next((one for one in COLUMNS if one in fields), None)
    if column is None:
        there = ", ".join(fields) or "none"
        raise DataError(f"{name}: no column {' or '.join(COLUMNS)}; there are: {there}; {ADVICE}")
    return column
