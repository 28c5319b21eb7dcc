"""Where text comes from: files, folders, globs, `-` for standard input, or the name of a built-in.

`open_source` checks names and encodings and refuses binary files first; the source that it returns can be read any
number of times, in chunks of bounded size. `read_text` is the shortcut for reading once.
"""

from __future__ import annotations

import glob
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from recollect.core.launch import launched
from recollect.data.error import DataError, Notify, did_you_mean, silent
from recollect.data.names import in_short, split_names
from recollect.data.synthetic.builtin import BUILTINS, builtin_documents, is_builtin, settle_builtin
from recollect.data.text.encoding import BLOCK, find_encoding
from recollect.data.text.formats import Chunk, check_field, read_chunks

__all__ = ["Chunk", "DataError", "TextSource", "open_source", "read_text"]

GLOB = "*?["


@dataclass(frozen=True)
class TextFile:
    """A file that is known to be text, and its encoding."""

    path: Path
    encoding: str


@dataclass(frozen=True)
class TextSource:
    """Text that can be read any number of times. Close it (or use `with`) to remove the copy of standard input."""

    name: str
    files: tuple[TextFile, ...] = ()
    builtin: str | None = None
    field: str = "text"
    spool: Path | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the text in order; a chunk has a flag for the end of a document."""
        if self.builtin is not None:
            for document in builtin_documents(self.builtin):
                yield Chunk(document, True)
        for file in self.files:
            yield from read_chunks(file.path, file.encoding, self.field)

    def close(self) -> None:
        """Remove the copy of standard input."""
        if self.spool is not None:
            shutil.rmtree(self.spool, ignore_errors=True)

    def __enter__(self) -> TextSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def read_text(data: str | Path, field: str | None = None, notify: Notify | None = None) -> Iterator[str]:
    """Yield the text of DATA in chunks, in order; notices go to standard error unless `notify` is given."""
    with open_source(data, field=field or "text", notify=notify or to_stderr) as source:
        for chunk in source.chunks():
            yield chunk.text


def to_stderr(notice: str) -> None:
    """Write a notice to standard error, where it does not mix with results; of several processes the first does."""
    if launched().is_first:
        sys.stderr.write(f"recollect: {notice}\n")


def open_source(
    data: str | Path, *, field: str = "text", notify: Notify = silent, stdin: BinaryIO | None = None
) -> TextSource:
    """Return the text that DATA names; `field` is the .jsonl field or table column that holds it.

    The name of a built-in has precedence over a file of the same name: `./copy` is the file. Several names are files,
    folders and globs, read in the given order; a file that two of them stand for is read once.
    """
    name = str(data)
    names = split_names(name)
    if len(names) > 1:
        found = dict.fromkeys(path for one in names for path in _find_among(one))
        return TextSource(
            in_short(name), files=_readable(in_short(name), list(found), field, False, notify), field=field
        )
    if name == "-":
        return _from_stdin(stdin or sys.stdin.buffer, field, notify)
    if isinstance(data, str) and is_builtin(name):
        if Path(name).exists():
            notify(f"{name} is the built-in text; write ./{name} for the file or folder of that name")
        return TextSource(name, builtin=settle_builtin(name, notify), field=field)
    paths, alone = _find(Path(name), name)
    return TextSource(name, files=_readable(name, paths, field, alone, notify), field=field)


def find_text(data: str) -> None:
    """Raise a DataError where a name of DATA stands for nothing; files are not opened."""
    names = split_names(data)
    for name in names:
        if len(names) > 1:
            _find_among(name)
        elif name != "-" and not is_builtin(name):
            _find(Path(name), name)


def _find_among(name: str) -> list[Path]:
    """Return the files that one of several names stands for."""
    if (name == "-" or is_builtin(name)) and not Path(name).exists():
        raise DataError(f"{name}: cannot be read together with other DATA; of several, each is a file, folder or glob")
    return _find(Path(name), name)[0]


def _find(path: Path, name: str) -> tuple[list[Path], bool]:
    """Return the files that a name stands for, and whether it is one file, which must then be readable."""

    def is_hidden(file: Path) -> bool:
        return any(part.startswith(".") for part in file.relative_to(path).parts)

    if path.is_dir():
        inside = [p for p in path.rglob("*") if p.is_file() and not is_hidden(p)]
        if not inside:
            raise DataError(f"{name}: a folder without files; put text in it, or give a file")
        return sorted(inside), False
    if path.exists():
        return [path], True
    if any(letter in name for letter in GLOB):
        found = sorted(Path(p) for p in glob.glob(name, recursive=True) if Path(p).is_file())
        if found:
            return found, False
    near = did_you_mean(path, BUILTINS)
    raise DataError(f"{name}: no such file, folder or built-in{near}; built-ins are: {', '.join(BUILTINS)}")


def _readable(name: str, paths: list[Path], field: str, alone: bool, notify: Notify) -> tuple[TextFile, ...]:
    """Find every file's encoding. A single file must be text; of many, others are left out with a notice.

    So are tables without the column that holds the text.
    """
    files = []
    for path in paths:
        try:
            file = TextFile(path, find_encoding(path, notify))
            if not alone:
                check_field(path, file.encoding, field)
        except DataError as error:
            if alone:
                raise
            notify(f"left out: {error}")
            continue
        files.append(file)
    if not files:
        raise DataError(f"{name}: none of the {len(paths)} files in it is text; give a text file")
    return tuple(files)


def _from_stdin(stdin: BinaryIO, field: str, notify: Notify) -> TextSource:
    """Copy standard input to a file: it can be read only once, and text is read several times."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))
    path = folder / "standard-input"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stdin, file, BLOCK)
        return TextSource("-", files=_readable("-", [path], field, True, notify), field=field, spool=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
