"""Bytes to characters: gzip or not, UTF-8, GB18030 or UTF-16 and UTF-32 with their marks, and what is not text at all.

A file's encoding is decided by reading it once before its first character is returned, so that a file is never read
partly in one encoding and partly in another.
"""

from __future__ import annotations

import codecs
import gzip
import io
import shlex
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from recollect.data.error import DataError, Notify, silent

BLOCK = 1 << 20  # bytes read at a time
GZIP_MAGIC = b"\x1f\x8b"
USUAL = "utf-8-sig"  # UTF-8, its byte order mark dropped
WIDE_MARKS = {  # that of UTF-32 first: it begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SHORT = 16  # bytes that say nothing about an encoding
OFTEN = 0.2  # share of zero bytes, all at even or all at odd places: UTF-16 without its mark
UNREADABLE = (OSError, EOFError, zlib.error)  # BadGzipFile is an OSError


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; gzip is recognised by its first two bytes, whatever the name."""
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if zipped else path.open("rb")


def open_text(path: Path, encoding: str) -> TextIO:
    """Open a file as characters; every line end, LF, CRLF or CR, is read as LF."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=None)


def numbered_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines, numbered from 1, without their ends.

    Only a line feed ends a line, so that two files are counted the same whatever other separators they hold.
    """
    try:
        with io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="\n") as text:
            for number, line in enumerate(text, 1):
                yield number, line.rstrip("\r\n")
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); take another copy") from error


def find_encoding(path: Path, notify: Notify = silent) -> str:
    """Return 'utf-8-sig', 'gb18030', or by its mark 'utf-16' or 'utf-32'; refuse what is not text."""
    try:
        wide = _wide_mark(path)
        encoding = wide or USUAL
        broken = _first_broken(path, encoding)
        if broken is not None and wide is None and _first_broken(path, "gb18030") is None:
            encoding = "gb18030"
            broken = None
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read ({error}); check the file, or take another copy") from error
    if broken is not None and wide is not None:
        raise DataError(f"{path}: {wide.upper()} by its mark, but it breaks near byte {broken}; take another copy")
    if broken is not None:
        problem = f"neither UTF-8 nor GB18030 text (UTF-8 breaks near byte {broken})"
        what = "convert it from what it is (LATIN1, CP1251, BIG5, SHIFT_JIS …)"
        raise DataError(f"{path}: {problem}; {what}: {_convert(path, 'LATIN1')}")
    if encoding == "gb18030":
        notify(f"{path}: not UTF-8; read as GB18030; if that is wrong: {_convert(path, 'BIG5')}")
    elif wide is not None:
        notify(f"{path}: read as {wide.upper()}")
    return encoding


def _wide_mark(path: Path) -> str | None:
    """Return the encoding that a file's byte order mark stands for, other than UTF-8."""
    with open_bytes(path) as file:
        start = file.read(4)
    return next((name for mark, name in WIDE_MARKS.items() if start.startswith(mark)), None)


def _convert(path: Path, encoding: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > text.txt"


def _refuse_zero(path: Path, block: bytes, size: int) -> None:
    """Raise a DataError for a block with a zero byte: UTF-16 without a mark, or no text."""
    even, odd = block[::2].count(0), block[1::2].count(0)
    if len(block) > SHORT and min(even, odd) == 0 and max(even, odd) > OFTEN * len(block):
        kind = "UTF-16BE" if even else "UTF-16LE"
        raise DataError(f"{path}: {kind} text without a mark; convert it: {_convert(path, kind)}")
    raise DataError(f"{path}: a binary file (a zero byte at {size + block.index(0)}); give a text file")


def _first_broken(path: Path, encoding: str) -> int | None:
    """Decode the whole file without keeping it; return the place of the first broken character, None if all decode."""
    decoder, size = codecs.getincrementaldecoder(encoding)(), 0
    with open_bytes(path) as file:
        while True:
            block = file.read(BLOCK)
            if 0 in block and encoding not in WIDE_MARKS.values():
                _refuse_zero(path, block, size)
            try:
                decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                return size + error.start
            if not block:
                return None
            size += len(block)
