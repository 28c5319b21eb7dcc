"""PNG pictures to pixels, by zlib alone: 8 bits, grey or RGB, with alpha or without (W3C, PNG, third edition)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by colour type: grey, RGB, both of them with alpha
GROUND = 255  # what is behind a see-through pixel: white
MOST = 1 << 26  # pixels: what claims more is no picture to caption

Pixels = NDArray[np.uint8]


class Header(NamedTuple):
    """A picture's first chunk."""

    breadth: int
    height: int
    depth: int
    colour: int
    compression: int
    filtering: int
    interlace: int


def read_png(path: Path) -> Pixels:
    """Give a picture as RGB (h, w, 3): grey thrice, what is see-through over white."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    if not content.startswith(SIGNATURE):
        raise DataError(f"{path}: not a PNG, its first bytes are others; convert it: magick {path.name} new.png")
    try:
        return _as_rgb(_decoded(content[len(SIGNATURE) :], path))
    except (struct.error, zlib.error, IndexError) as error:
        raise DataError(f"{path}: damaged, it cannot be read to its end ({error}); take another copy") from error


def _decoded(content: bytes, path: Path) -> Pixels:
    header, packed = None, b""
    for kind, body in _chunks(content):
        if kind == b"IHDR":
            header = Header(*struct.unpack(">IIBBBBB", body))
            _check(header, path)
        elif kind == b"IDAT":
            packed += body
    if header is None:
        raise zlib.error("no header")
    return _unfiltered(_inflated(packed, header), header)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give each chunk's kind and body, up to the end's; a wrong checksum is a damage."""
    place, kind = 0, b""
    while kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", content, place)
        body = content[place + 8 : place + 8 + size]
        (checksum,) = struct.unpack_from(">I", content, place + 8 + size)
        if zlib.crc32(kind + body) != checksum:
            raise zlib.error(f"wrong checksum of {kind!r}")
        yield kind, body
        place += 12 + size


def _check(header: Header, path: Path) -> None:
    """Refuse what is a PNG but of a kind that is not read here."""
    kinds = {
        "a palette": header.colour == 3,
        f"{header.depth} bits to a channel": header.depth != 8,
        "interlaced rows": header.interlace != 0,
        f"{header.breadth} × {header.height} pixels": not 0 < header.breadth * header.height <= MOST,
        f"the unknown colour type {header.colour}": header.colour not in CHANNELS and header.colour != 3,
    }
    seen = next((kind for kind, is_so in kinds.items() if is_so), None)
    if seen is not None:
        raise DataError(
            f"{path}: a PNG with {seen}, expected 8-bit grey or RGB, not interlaced; "
            f"convert it: magick {path.name} -interlace none -depth 8 PNG32:new.png"
        )


def _inflated(packed: bytes, header: Header) -> bytes:
    """Give the rows, a filter's number before each; never more than the header says."""
    size = header.height * (1 + header.breadth * CHANNELS[header.colour])
    flat = zlib.decompressobj().decompress(packed, size)
    if len(flat) < size:
        raise zlib.error(f"{len(flat)} bytes of pixels, expected {size}")
    return flat


def _unfiltered(flat: bytes, header: Header) -> Pixels:
    rows = np.frombuffer(flat, dtype=np.uint8).reshape(header.height, -1)
    shape = header.breadth, CHANNELS[header.colour]
    pixels = np.zeros((header.height, *shape), dtype=np.uint8)
    above = np.zeros(shape, dtype=np.uint8)
    for number, row in enumerate(rows):
        above = pixels[number] = _unfilter(int(row[0]), row[1:].reshape(shape), above)
    return pixels


def _unfilter(kind: int, row: Pixels, above: Pixels) -> Pixels:
    """Undo a row's filter; sums are of bytes, modulo 256."""
    if kind == 0:  # none
        return row
    if kind == 1:  # sub: to what is left of it
        return np.cumsum(row, axis=0, dtype=np.uint8)
    if kind == 2:  # up
        return row + above
    if kind in (3, 4):  # average, Paeth: one pixel after the other, as each needs the one before
        return _unfilter_slowly(row, above, _mean if kind == 3 else _paeth)
    raise zlib.error(f"no filter {kind}")


def _unfilter_slowly(row: Pixels, above: Pixels, predict: Callable[[int, int, int], int]) -> Pixels:
    channels = row.shape[1]
    given, upper = row.ravel().tolist(), above.ravel().tolist()
    found = [0] * channels  # the pixel before the first
    corner = [0] * channels + upper
    for place, value in enumerate(given):
        found.append((value + predict(found[place], upper[place], corner[place])) & 255)
    return np.array(found[channels:], dtype=np.uint8).reshape(row.shape)


def _mean(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    """Give the neighbour that is nearest to left + up − corner; among equals left, then up."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))


def _as_rgb(pixels: Pixels) -> Pixels:
    channels = pixels.shape[2]
    if channels in (2, 4):
        alpha = pixels[..., -1:].astype(np.uint32)
        seen = (pixels[..., :-1] * alpha + GROUND * (255 - alpha) + 127) // 255
        pixels = seen.astype(np.uint8)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)
