"""Where pairs come from: tables (.tsv, .csv, text with tabs), .jsonl, two files line by line, a folder with two such
files, or a generated task.

`open_pairs` checks names and encodings first; the source that it returns can be read any number of times. Errors name
the file and the line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from recollect.data.error import DataError, Notify, did_you_mean, silent
from recollect.data.names import in_short, split_names
from recollect.data.synthetic.pair_generators import PAIR_TASKS, Lines, is_pair_task, task_pairs
from recollect.data.text.encoding import find_encoding, numbered_lines, open_text
from recollect.data.text.formats import FIELD_LIMIT, format_of
from recollect.data.text.source import TextFile

FORMS = (
    "a .tsv, .csv or .jsonl, a text with a tab in each line, two files line by line as train.de train.en, "
    "a folder with two such files, or a generated task"
)
FIELDS = "source,target"


@dataclass(frozen=True)
class PairSource:
    """Pairs that can be read any number of times."""

    name: str
    files: tuple[TextFile, ...] = ()
    is_parallel: bool = False  # two files, the sources' and the targets', line by line; else each holds pairs
    task: str | None = None
    fields: tuple[str, str] | None = None  # None: source and target, or the first two columns

    def pairs(self) -> Iterator[Lines]:
        """Yield the pairs in order, without line ends."""
        if self.task is not None:
            yield from task_pairs(self.task)
        elif self.is_parallel:
            yield from _side_by_side(*self.files)
        else:
            for file in self.files:
                yield from READERS[format_of(file.path)](file, self.fields)


def open_pairs(data: str | Path, *, field: str | None = None, notify: Notify = silent) -> PairSource:
    """Return the pairs that DATA names; `field` names two fields or columns, or the two endings in a folder.

    Two files of a folder, two with a comma between them, and two plain texts belong together line by line, unless both
    texts have tabs; other files, one or several, hold pairs each.
    """
    name = str(data)
    if isinstance(data, str) and is_pair_task(name):
        if Path(name).exists():
            notify(f"{name} is the generated task; write ./{name} for the file or folder of that name")
        return PairSource(name, task=name)
    fields = None if field is None else _two_names(field)
    paths, is_parallel = _find(name, fields, notify)
    files = [TextFile(path, find_encoding(path, notify)) for path in paths]
    texts = [file for file in files if format_of(file.path) == "text" and not _has_tab(file)]
    is_parallel = is_parallel or (len(files) == 2 and bool(texts) and {format_of(path) for path in paths} == {"text"})
    if texts and not is_parallel:
        raise DataError(f"{texts[0].path}: one text cannot hold pairs; give {FORMS}")
    if fields is None:
        _tell_header(files, notify)
    return PairSource(in_short(name), tuple(files), is_parallel, fields=fields)


def find_pairs(data: str) -> None:
    """Raise a DataError where a name of DATA stands for nothing; files are not opened."""
    if not is_pair_task(data) and not Path(data).is_dir():
        _find(data, None, silent)


def _two_names(field: str) -> tuple[str, str]:
    names = [part.strip() for part in field.split(",")]
    if len(names) != 2 or not all(names):
        raise DataError(f"field: got {field!r}, expected two names; write --set field={FIELDS}")
    return names[0], names[1]


def _tell_header(files: list[TextFile], notify: Notify) -> None:
    """Tell of a .csv with two columns whose first row might be their names."""
    for file in (file for file in files if format_of(file.path) == "csv"):
        with open_text(file.path, file.encoding) as text:
            row: list[str] = next(filter(None, csv.reader(text)), [])
        if len(row) == 2 and set(row) != set(FIELDS.split(",")):
            names = ",".join(row)
            notify(f"{file.path}: row 1 ({names}) is read as a pair; if it names the columns: --set field={names}")


def _has_tab(file: TextFile) -> bool:
    """Return whether the first line that is not empty has a tab."""
    return "\t" in next((line for _, line in _lines_of(file) if line), "")


def _find(name: str, endings: tuple[str, str] | None, notify: Notify) -> tuple[list[Path], bool]:
    """Return the files, and whether they are two that belong together: of a folder, or with a comma between them."""
    if Path(name).is_dir():
        return _in_folder(Path(name), endings, notify), True
    is_list = not Path(name).exists() and name.count(",") == 1
    parts = name.split(",") if is_list else split_names(name)
    for part in parts:
        if not Path(part).is_file():
            near = did_you_mean(Path(part), PAIR_TASKS)
            raise DataError(f"{part}: no such file or folder{near}; pairs are {FORMS}: {', '.join(PAIR_TASKS)}")
    return [Path(part) for part in parts], is_list


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


def _tabs(file: TextFile, fields: tuple[str, str] | None) -> Iterator[Lines]:
    """Yield the first two cells of each line, or those that the first line names so; there are no quotes."""
    columns: tuple[int, int] | None = None if fields else (0, 1)
    for number, line in _lines_of(file):
        if not line:
            continue
        cells = line.split("\t")
        if columns is None:
            columns = _columns(cells, fields or ("", ""), f"{file.path}, line {number}")
        elif len(cells) <= max(columns):
            problem = "no tab" if len(cells) == 1 else f"{len(cells)} cells"
            raise DataError(f"{file.path}, line {number}: {problem}; a line is a source, a tab and a target")
        else:
            yield cells[columns[0]], cells[columns[1]]


def _commas(file: TextFile, fields: tuple[str, str] | None) -> Iterator[Lines]:
    """Yield two cells of each row of a .csv: those that the first row names, or both of two columns without names."""
    csv.field_size_limit(FIELD_LIMIT)
    columns: tuple[int, int] | None = None
    with open_text(file.path, file.encoding) as text:
        rows = csv.reader(text, strict=True)
        try:
            for row in filter(None, rows):
                where = f"{file.path}, line {rows.line_num}"
                if columns is None:
                    is_header = fields is not None or set(FIELDS.split(",")) <= set(row) or len(row) != 2
                    columns = _columns(row, fields or ("source", "target"), where) if is_header else (0, 1)
                    if is_header:
                        continue
                if len(row) <= max(columns):
                    raise DataError(f"{where}: {len(row)} cells, expected {max(columns) + 1} or more")
                source, target = (" ".join(row[column].splitlines()) for column in columns)
                yield source, target
        except csv.Error as error:
            raise DataError(f"{file.path}, line {rows.line_num}: not a table that can be read ({error})") from error


def _columns(header: list[str], fields: tuple[str, str], where: str) -> tuple[int, int]:
    """Return the places of two columns by their names."""
    missing = [field for field in fields if field not in header]
    if missing:
        names = ", ".join(header)
        raise DataError(f"{where}: no column {missing[0]!r}; there are: {names}; name two with --set field={FIELDS}")
    return header.index(fields[0]), header.index(fields[1])


def _objects(file: TextFile, fields: tuple[str, str] | None) -> Iterator[Lines]:
    for number, line in _lines_of(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{file.path}, line {number}: not JSON ({error}); .jsonl has one JSON object a line"
            ) from error
        source, target = (_field(row, field, f"{file.path}, line {number}") for field in fields or ("source", "target"))
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


READERS = {"text": _tabs, "tsv": _tabs, "csv": _commas, "jsonl": _objects}
