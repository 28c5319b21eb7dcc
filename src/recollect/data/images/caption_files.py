"""Where captions come from: a folder of pictures with captions.tsv, a .npz with a .tsv, or the generated shapes.

A line of the .tsv is a picture's name and a caption; several lines may name the same picture. Errors name the file and
the line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recollect.data.error import DataError, did_you_mean
from recollect.data.images.pictures import Pictures, generated, is_generated, read_pictures, read_rows
from recollect.data.text.encoding import find_encoding, numbered_lines
from recollect.data.text.formats import format_of

TABLES = ("captions.tsv", "captions.tsv.gz")
FORMS = "a folder of pictures with captions.tsv, two files as images.npz,captions.tsv, or shapes"
FIELDS = "file,caption"


class Captioned(NamedTuple):
    """One caption: the number of its picture, and the group that must not be divided when parts are held out."""

    picture: int
    caption: str
    group: str


@dataclass(frozen=True)
class CaptionSource:
    """Pictures and their captions."""

    name: str
    pictures: Pictures
    rows: list[Captioned]

    @property
    def size(self) -> tuple[int, ...]:
        """Height, width and channels of every picture."""
        return self.pictures.pixels.shape[1:]

    def digests(self) -> list[str]:
        """Return a hash of each picture, the same for the same pixels."""
        return [hashlib.sha256(picture.tobytes()).hexdigest() for picture in self.pictures.pixels]


class _Line(NamedTuple):
    number: int
    picture: str
    caption: str
    group: str | None


def open_captions(data: str, field: str | None = None) -> CaptionSource:
    """Read the pictures and captions that DATA names.

    `field` means that the .tsv begins with a line of column names, and names the columns of a picture and its caption;
    a third one is the group by which parts are held out. Without it the first two columns are read, and parts are held
    out by the pixels of the picture.
    """
    if is_generated(data) and not Path(data).exists():
        pixels, captions = generated(data)
        pictures = Pictures([f"{data}#{number}" for number in range(len(pixels))], pixels)
        return _source(data, pictures, [_Line(n, str(n), text, None) for n, text in enumerate(captions)])
    table, rows = _find(data)
    lines = list(_lines(table, field))
    if not lines:
        raise DataError(f"{table}: no caption in it; a line is a picture's name, a tab and a caption")
    if rows is not None:
        pixels = read_rows(rows)
        lines = [line._replace(picture=str(_row(table, line, len(pixels)))) for line in lines]
        return _source(data, Pictures([f"{rows}#{number}" for number in range(len(pixels))], pixels), lines)
    first = {line.picture: line for line in reversed(lines)}  # the line that names a picture first
    names = list(dict.fromkeys(line.picture for line in lines))
    paths = [_beside(table, first[name]) for name in names]
    number = {name: str(place) for place, name in enumerate(names)}
    pictures = Pictures([str(path) for path in paths], read_pictures(paths))
    return _source(data, pictures, [line._replace(picture=number[line.picture]) for line in lines])


def find_captions(data: str) -> None:
    """Raise a DataError where a name of DATA stands for nothing; files are not opened."""
    if not is_generated(data) or Path(data).exists():
        _find(data)


def _source(data: str, pictures: Pictures, lines: list[_Line]) -> CaptionSource:
    source = CaptionSource(data, pictures, [])
    digests = source.digests() if any(line.group is None for line in lines) else []
    for line in lines:
        picture = int(line.picture)
        group = digests[picture] if line.group is None else line.group
        source.rows.append(Captioned(picture, line.caption, group))
    return source


def _find(data: str) -> tuple[Path, Path | None]:
    """Return the table, and the .npz whose rows it names, if any."""
    path, parts = Path(data), data.split(",")
    if path.is_dir():
        table = next((path / name for name in TABLES if (path / name).is_file()), None)
        if table is None:
            raise DataError(f"{data}: no captions.tsv in it, with a picture's name, a tab and a caption on each line")
        rows = sorted(path.glob("*.npz"))
        return table, rows[0] if len(rows) == 1 else None
    if len(parts) == 2:
        rows_path, table = Path(parts[0]), Path(parts[1])
        for part in (rows_path, table):
            if not part.is_file():
                raise DataError(f"{part}: no such file{did_you_mean(part)}; captions are {FORMS}")
        return table, rows_path
    if path.is_file() and format_of(path) == "tsv":
        return path, None
    what = "not a table of captions" if path.is_file() else f"no such file or folder{did_you_mean(path)}"
    raise DataError(f"{data}: {what}; captions are {FORMS}")


def _beside(table: Path, line: _Line) -> Path:
    path = table.parent / line.picture
    if not path.is_file():
        where = f"{table}, line {line.number}"
        raise DataError(f"{where}: no picture {path}{did_you_mean(path)}; put it there or remove the line")
    return path


def _row(table: Path, line: _Line, count: int) -> int:
    if not line.picture.isdecimal() or int(line.picture) >= count:
        expected = f"expected the number of a row, 0 to {count - 1}"
        raise DataError(f"{table}, line {line.number}: got {line.picture!r} for a picture, {expected}")
    return int(line.picture)


# ---- lines ---------------------------------------------------------------------------------------------


def _lines(table: Path, field: str | None) -> Iterator[_Line]:
    """Yield the table's lines; where `field` is given, the first line has the names of the columns."""
    columns = [0, 1]
    for number, line in numbered_lines(table, find_encoding(table)):
        cells = line.split("\t")
        if number == 1 and field is not None:
            columns = _columns(table, cells, field)
        elif line.strip():
            if len(cells) <= max(columns):
                columns_needed = f"got {len(cells)} columns, expected {max(columns) + 1}"
                raise DataError(f"{table}, line {number}: {columns_needed}: a picture's name, a tab and a caption")
            picture, caption, *group = (cells[column].strip() for column in columns)
            if not caption:
                raise DataError(f"{table}, line {number}: the caption is empty; write one or remove the line")
            yield _Line(number, picture, caption, group[0] if group else None)


def _columns(table: Path, names: list[str], field: str) -> list[int]:
    """Return the columns of a picture, its caption and, where it is named, its group."""
    chosen = [name.strip() for name in field.split(",")]
    if len(chosen) not in (2, 3):
        raise DataError(f"field: got {field!r}, expected two names, or three with a group; write --set field={FIELDS}")
    for name in chosen:
        if name not in names:
            raise DataError(f"{table}: no column {name!r}; its first line has: {', '.join(names)}")
    return [names.index(name) for name in chosen]
