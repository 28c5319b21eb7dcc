"""The lines that a model is asked about: words as they are typed, a file of lines or a column of a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from recollect.data.error import DataError
from recollect.data.text.encoding import find_encoding
from recollect.data.text.formats import fields_of, format_of
from recollect.data.text.source import open_source, to_stderr

ENDINGS = (".txt", ".tsv", ".csv", ".jsonl", ".gz")
COLUMNS = ("text", "source")  # of a table, after the run's own: the first that is there
ADVICE = "give a file of lines, -, or the words themselves"


def lines_of(words: str, column: str | None = None) -> list[str]:
    """Return the lines of a file or of standard input (`-`), or the words themselves.

    What can only be a file's name, one word with a known ending or a folder before it, is refused where there is none.
    A table has one text a row, in the run's own `column`, or in text or source; line ends within it become blanks.
    """
    if os.path.isdir(words):  # not Path.is_dir, which raises for words longer than a name may be
        raise DataError(f"{words}: a folder; {ADVICE}")
    if words != "-" and not os.path.isfile(words):
        is_name = len(words.split()) == 1 and (words.lower().endswith(ENDINGS) or Path(words).parent != Path())
        if is_name or words.startswith(("./", "../", "~/")) or words.endswith("/"):
            raise DataError(f"{words}: there is no such file; {ADVICE}")
        return [words]
    lines = _lines_in(words, column)
    if not lines:
        raise DataError(f"{words}: no lines; {ADVICE}")
    return lines


def one_line(text: str) -> str:
    """Return a text with blanks for its line ends."""
    return " ".join(text.splitlines())


def _lines_in(words: str, column: str | None) -> list[str]:
    """Return the lines of a text, which only line feeds end, or a line for each row of a table."""
    path = Path(words)
    is_table = format_of(path) != "text"
    field = find_column(words, fields_of(path, find_encoding(path)) or [], column) if is_table else "text"
    with open_source(words, field=field, notify=to_stderr) as source:
        if is_table:
            return [one_line(chunk.text) for chunk in source.chunks()]
        text = "".join(chunk.text for chunk in source.chunks())
    return text.removesuffix("\n").split("\n") if text else []


def find_column(where: str, there: Sequence[str], own: str | None = None) -> str:
    """Return the column of texts: the run's own, or else text or source; raise a DataError where there is none."""
    known = COLUMNS if own is None else tuple(dict.fromkeys((own, *COLUMNS)))
    column = next((one for one in known if one in there), None)
    if column is None:
        expected = " or ".join(known) if len(known) < 3 else f"{own}, text or source"
        raise DataError(f"{where}: no column {expected}; there are: {', '.join(there) or 'none'}; {ADVICE}")
    return column
