"""Whether data without a task are pairs of a source and a target: by their names and by what they hold."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from recollect.data.error import DataError
from recollect.data.text.encoding import find_encoding, numbered_lines
from recollect.data.text.formats import fields_of, format_of

LEAST = 3  # lines of two parallel files
SAMPLE = 1000  # lines of a table that are looked at
VARIETY = 0.5  # share of distinct cells in both columns: labels and counts repeat


class Verdict(NamedTuple):
    """Whether data are pairs, and why, in words; no words where nobody would ask."""

    are_pairs: bool
    reason: str = ""
    otherwise: str = "for pairs: --task translate"  # what to type where the data are no text


def judge_pairs(names: list[str]) -> Verdict:
    """Return whether data are pairs.

    They are: two plain texts with the same number of lines, both .txt or with different endings (train.de train.en);
    one text, or a .tsv without a column text, in which every line has a tab between two cells that rarely repeat; a
    table with the columns source and target; and two files that are named with a comma between them.
    """
    paths = [Path(name) for name in names]
    try:
        if all(path.is_file() for path in paths):
            if len(paths) == 2:
                return _of_two(*paths)
            return _of_one(paths[0]) if len(paths) == 1 else Verdict(False)
    except DataError:  # not text: whoever reads it refuses it with the reason
        return Verdict(False)
    parts = names[0].split(",")
    is_list = len(names) == 1 and len(parts) == 2 and all(Path(part).is_file() for part in parts)
    return Verdict(is_list, "two files" if is_list else "")


def _of_two(one: Path, other: Path) -> Verdict:
    endings = [path.name.lower().removesuffix(".gz").rpartition(".")[2] for path in (one, other)]
    is_named_so = endings == ["txt", "txt"] or endings[0] != endings[1]
    if not is_named_so or {format_of(one), format_of(other)} != {"text"}:
        return Verdict(False)
    counts = [sum(1 for _ in numbered_lines(path, find_encoding(path))) for path in (one, other)]
    if counts[0] == counts[1] >= LEAST:
        return Verdict(True, f"{counts[0]} lines each")
    return Verdict(False, f"{counts[0]} and {counts[1]} lines")


def _of_one(path: Path) -> Verdict:
    encoding = find_encoding(path)
    names = set(fields_of(path, encoding) or ())
    if {"source", "target"} <= names:
        return Verdict(True, "the columns source and target")
    if {"text", "label"} <= names:
        return Verdict(False, "the columns text and label", "for labels: --task classify")
    lines = [line for _, line in islice(numbered_lines(path, encoding), SAMPLE) if line]
    rows = [line.split("\t") for line in lines]
    is_divided = len(rows) >= LEAST and min(map(len, rows)) >= 2
    if format_of(path) not in ("text", "tsv") or "text" in names or not is_divided:
        return Verdict(False)
    columns = list(zip(*(row[:2] for row in rows), strict=True))
    is_varied = all(len(set(column)) > VARIETY * len(rows) and all(column) for column in columns)
    return Verdict(is_varied, "a tab in every line")
