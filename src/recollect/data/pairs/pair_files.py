"""Where pairs come from: a .tsv, a .jsonl, two files line by line, a folder with two such files, or a generated task.

`open_pairs` settles early what can go wrong with names and encodings; the source it gives can be read as often as
needed. What is wrong with a line is said with its file and number.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from recollect.core.validate import nearest
from recollect.data.error import DataError, Notify, silent
from recollect.data.synthetic.pair_generators import PAIR_TASKS, Lines, is_pair_task, task_pairs
from recollect.data.text.encoding import UNREADABLE, find_encoding, open_bytes
from recollect.data.text.formats import format_of
from recollect.data.text.source import TextFile

FORMS = "a .tsv, a .jsonl, two files as train.de,train.en, a folder with two such files, or a generated task"
FIELDS = "source,target"

Numbered: TypeAlias = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class PairSource:
    """Pairs that can be read again and again."""

    name: str
    files: tuple[TextFile, ...] = ()  # one, or a source's and its target's
    task: str | None = None
    fields: tuple[str, str] = ("source", "target")

    def pairs(self) -> Iterator[Lines]:
        """Give the pairs in order, line ends taken off."""
        if self.task is not None:
            yield from task_pairs(self.task)
        elif len(self.files) == 2:
            yield from _side_by_side(*self.files)
        elif format_of(self.files[0].path) == "jsonl":
            yield from _objects(self.files[0], self.fields)
        else:
            yield from _columns(self.files[0])


def open_pairs(data: str | Path, *, field: str | None = None, notify: Notify = silent) -> PairSource:
    """Find the pairs that DATA names. `field` names the two fields of a .jsonl, or the two endings in a folder."""
    name = str(data)
    if isinstance(data, str) and is_pair_task(name):
        if Path(name).exists():
            notify(f"{name} is the generated task; write ./{name} for the file or folder of that name")
        return PairSource(name, task=name)
    fields = _two(field or FIELDS)
    paths = _find(name, fields if field else None, notify)
    return PairSource(name, tuple(_readable(path, notify) for path in paths), fields=fields)


def _two(field: str) -> tuple[str, str]:
    names = [part.strip() for part in field.split(",")]
    if len(names) != 2 or not all(names):
        raise DataError(f"field: got {field!r}, expected two names; write --set field={FIELDS}")
    return names[0], names[1]


def _find(name: str, endings: tuple[str, str] | None, notify: Notify) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return _in_folder(path, endings, notify)
    if path.exists():
        if format_of(path) not in ("tsv", "jsonl"):
            raise DataError(f"{name}: one text cannot hold pairs; give {FORMS}")
        return [path]
    parts = name.split(",")
    if len(parts) == 2:
        for part in parts:
            if not Path(part).is_file():
                raise _nothing_there(part)
        return [Path(part) for part in parts]
    raise _nothing_there(name)


def _nothing_there(name: str) -> DataError:
    path = Path(name)
    beside = path.parent if path.parent.is_dir() else Path()
    near = nearest(path.name, [p.name for p in beside.iterdir()] + list(PAIR_TASKS))
    return DataError(f"{name}: no such file or folder{near}; pairs are {FORMS}: {', '.join(PAIR_TASKS)}")


def _in_folder(folder: Path, endings: tuple[str, str] | None, notify: Notify) -> list[Path]:
    """Take the two files of one stem, in the order of their endings: that of `field`, else of the alphabet."""
    files = {_ending(p): p for p in sorted(folder.iterdir()) if p.is_file() and not p.name.startswith(".")}
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    if len(names) != 2 or len(files) != 2 or len({_stem(path) for path in files.values()}) != 1:
        seen = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        raise DataError(
            f"{folder}: got {seen or 'no files'}, expected two files of one stem, as train.de and train.en; "
            f"name the two: {folder}/train.de,{folder}/train.en"
        )
    if endings is not None and set(endings) != set(files):
        raise DataError(f"{folder}: no {' and '.join(endings)} among the endings; there are: {', '.join(files)}")
    order = endings or tuple(files)
    notify(
        f"{folder}: {files[order[0]].name} to {files[order[1]].name}; --set field={order[1]},{order[0]} turns it round"
    )
    return [files[ending] for ending in order]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[0]


def _ending(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2]


def _readable(path: Path, notify: Notify) -> TextFile:
    encoding = find_encoding(path)
    if encoding == "gb18030":
        notify(f"{path}: not UTF-8; read as GB18030")
    return TextFile(path, encoding)


# ---- lines ---------------------------------------------------------------------------------------------


def _lines(file: TextFile) -> Numbered:
    """Number the lines from 1. Only a line feed ends one, so that two files count alike whatever else they hold."""
    try:
        with io.TextIOWrapper(open_bytes(file.path), encoding=file.encoding, newline="\n") as text:
            for number, line in enumerate(text, 1):
                yield number, line.rstrip("\r\n")
    except UNREADABLE as error:
        raise DataError(f"{file.path}: cannot be read to its end ({error}); take another copy") from error


def _side_by_side(source: TextFile, target: TextFile) -> Iterator[Lines]:
    for one, other in zip_longest(_lines(source), _lines(target)):
        if one is None or other is None:
            longer, shorter = (source, target) if other is None else (target, source)
            number = (one or other)[0]
            raise DataError(
                f"{longer.path}, line {number}: no such line in {shorter.path}, which has {number - 1}; "
                "both need as many: line 1 belongs to line 1"
            )
        yield one[1], other[1]


def _columns(file: TextFile) -> Iterator[Lines]:
    for number, line in _lines(file):
        if not line:
            continue
        source, tab, rest = line.partition("\t")
        if not tab:
            raise DataError(f"{file.path}, line {number}: no tab; a line is a source, a tab and a target")
        yield source, rest.partition("\t")[0]


def _objects(file: TextFile, fields: tuple[str, str]) -> Iterator[Lines]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{file.path}, line {number}: not JSON ({error}); .jsonl has one JSON object a line"
            ) from error
        source, target = (_field(row, field, f"{file.path}, line {number}") for field in fields)
        yield source, target


def _field(row: Any, field: str, where: str) -> str:
    """Give one side of an object; a line end within it would break the line that it becomes."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: a {type(row).__name__}, not an object like {{{json.dumps(field)}: …}}")
    if field not in row:
        names = ", ".join(row) or "none"
        raise DataError(f"{where}: no field {field!r}; there are: {names}; name two with --set field={FIELDS}")
    if not isinstance(row[field], str):
        raise DataError(f"{where}: field {field!r} is a {type(row[field]).__name__}, not a string")
    if not row[field].isascii() and any("\ud800" <= c <= "\udfff" for c in row[field]):
        raise DataError(f'{where}: field {field!r} holds half of a character; write it whole, as "🙂"')
    return " ".join(row[field].splitlines())
