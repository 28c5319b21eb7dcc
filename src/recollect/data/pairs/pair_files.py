"""Where pairs come from: a .tsv, a .jsonl, two files line by line, a folder with two such files, or a generated task.

`open_pairs` checks names and encodings first; the source that it returns can be read any number of times. Errors name
the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from recollect.data.error import DataError, Notify, did_you_mean, silent
from recollect.data.synthetic.pair_generators import PAIR_TASKS, Lines, is_pair_task, task_pairs
from recollect.data.text.encoding import find_encoding, numbered_lines
from recollect.data.text.formats import format_of
from recollect.data.text.source import TextFile

FORMS = "a .tsv, a .jsonl, two files as train.de,train.en, a folder with two such files, or a generated task"
FIELDS = "source,target"


@dataclass(frozen=True)
class PairSource:
    """Pairs that can be read any number of times."""

    name: str
    files: tuple[TextFile, ...] = ()  # one, or a source's and its target's
    task: str | None = None
    fields: tuple[str, str] = ("source", "target")

    def pairs(self) -> Iterator[Lines]:
        """Yield the pairs in order, without line ends."""
        if self.task is not None:
            yield from task_pairs(self.task)
        elif len(self.files) == 2:
            yield from _side_by_side(*self.files)
        elif format_of(self.files[0].path) == "jsonl":
            yield from _objects(self.files[0], self.fields)
        else:
            yield from _columns(self.files[0])


def open_pairs(data: str | Path, *, field: str | None = None, notify: Notify = silent) -> PairSource:
    """Return the pairs that DATA names; `field` names the two fields of a .jsonl, or the two endings in a folder."""
    name = str(data)
    if isinstance(data, str) and is_pair_task(name):
        if Path(name).exists():
            notify(f"{name} is the generated task; write ./{name} for the file or folder of that name")
        return PairSource(name, task=name)
    names = [part.strip() for part in (field or FIELDS).split(",")]
    if len(names) != 2 or not all(names):
        raise DataError(f"field: got {field!r}, expected two names; write --set field={FIELDS}")
    fields = names[0], names[1]
    files = []
    for path in _find(name, fields if field else None, notify):
        encoding = find_encoding(path)
        if encoding == "gb18030":
            notify(f"{path}: not UTF-8; read as GB18030")
        files.append(TextFile(path, encoding))
    return PairSource(name, tuple(files), fields=fields)


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
    near = did_you_mean(Path(name), PAIR_TASKS)
    return DataError(f"{name}: no such file or folder{near}; pairs are {FORMS}: {', '.join(PAIR_TASKS)}")


def _in_folder(folder: Path, endings: tuple[str, str] | None, notify: Notify) -> list[Path]:
    """Return the two files of one stem, in the order of `field`, else in alphabetical order of their endings."""
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    names = [path.name.removesuffix(".gz").rpartition(".") for path in paths]  # stem, dot, ending
    files = {ending: path for (_, _, ending), path in zip(names, paths, strict=True)}
    if len(paths) != 2 or len(files) != 2 or names[0][0] != names[1][0]:
        got = ", ".join(path.name for path in paths[:6]) + (", …" if len(paths) > 6 else "")
        raise DataError(
            f"{folder}: got {got or 'no files'}, expected two files of one stem, as train.de and train.en; "
            f"name the two: {folder}/train.de,{folder}/train.en"
        )
    if endings is not None and set(endings) != set(files):
        raise DataError(f"{folder}: no {' and '.join(endings)} among the endings; there are: {', '.join(files)}")
    order = endings or tuple(files)
    notify(f"{folder}: {files[order[0]].name} to {files[order[1]].name}; --set field={order[1]},{order[0]} reverses it")
    return [files[ending] for ending in order]


# ---- lines ---------------------------------------------------------------------------------------------


def _lines_of(file: TextFile) -> Iterator[tuple[int, str]]:
    return numbered_lines(file.path, file.encoding)


def _side_by_side(source: TextFile, target: TextFile) -> Iterator[Lines]:
    for one, other in zip_longest(_lines_of(source), _lines_of(target)):
        if one is None or other is None:
            longer, shorter = (source, target) if other is None else (target, source)
            number = (one or other)[0]
            raise DataError(
                f"{longer.path}, line {number}: no such line in {shorter.path}, which has {number - 1}; "
                "both need the same number of lines: line 1 belongs to line 1"
            )
        yield one[1], other[1]


def _columns(file: TextFile) -> Iterator[Lines]:
    for number, line in _lines_of(file):
        if not line:
            continue
        source, tab, rest = line.partition("\t")
        if not tab:
            raise DataError(f"{file.path}, line {number}: no tab; a line is a source, a tab and a target")
        yield source, rest.partition("\t")[0]


def _objects(file: TextFile, fields: tuple[str, str]) -> Iterator[Lines]:
    for number, line in _lines_of(file):
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


def _field(row: object, field: str, where: str) -> str:
    """Return one side of an object on one line: line ends within it become blanks."""
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
