"""Bytes to characters: gzip or not, UTF-8 or GB18030, and what is not text at all.

A file's encoding is decided by reading it once before its first character is returned, so that a file is never read
partly in one encoding and partly in another.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from recollect.data.error import DataError

BLOCK = 1 << 20  # bytes read at a time
GZIP_MAGIC = b"\x1f\x8b"
WIDE_MARKS = {b"\xff\xfe": "UTF-16LE", b"\xfe\xff": "UTF-16BE"}
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


def find_encoding(path: Path) -> str:
    """Return 'utf-8-sig' (UTF-8, its byte order mark dropped) or 'gb18030'; refuse what is not text."""
    try:
        broken = _first_broken(path, "utf-8-sig")
        if broken is None:
            return "utf-8-sig"
        if _first_broken(path, "gb18030") is None:
            return "gb18030"
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read ({error}); check the file, or take another copy") from error
    raise DataError(
        f"{path}: neither UTF-8 nor GB18030 text (UTF-8 breaks near byte {broken}); "
        f"convert it: iconv -f ENCODING -t UTF-8 {path.name} > text.txt"
    )


def _first_broken(path: Path, encoding: str) -> int | None:
    """Decode the whole file without keeping it; return the place of the first broken character, None if all decode."""
    decoder, size = codecs.getincrementaldecoder(encoding)(), 0
    with open_bytes(path) as file:
        while True:
            block = file.read(BLOCK)
            if size == 0 and block[:2] in WIDE_MARKS:
                wide = WIDE_MARKS[block[:2]]
                raise DataError(f"{path}: {wide} text; convert it: iconv -f {wide} -t UTF-8 {path.name} > text.txt")
            if 0 in block:
                raise DataError(f"{path}: a binary file (a zero byte at {size + block.index(0)}); give a text file")
            try:
                decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                return size + error.start
            if not block:
                return None
            size += len(block)
