"""Pictures come in as they are: PNGs of every filter and colour, arrays, folders; what is none is refused by name."""

from __future__ import annotations

import io
import re
import struct
import zlib

import numpy as np
import pytest

from recollect.data.error import DataError
from recollect.data.images.pictures import generated, open_pictures
from recollect.data.images.png import SIGNATURE, read_png

COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels to a PNG's colour type


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def filtered(image: np.ndarray, kinds: list[int]) -> bytes:
    """Write rows by the definition of PNG's filters: x minus what the filter expects, modulo 256."""
    height, breadth, channels = image.shape
    padded = np.zeros((height + 1, breadth + 1, channels), dtype=np.int64)
    padded[1:, 1:] = image
    rows = []
    for y in range(height):
        left, up, corner = padded[y + 1, :-1], padded[y, 1:], padded[y, :-1]
        guess = left + up - corner
        far = [abs(guess - t) for t in (left, up, corner)]
        paeth = np.where(
            (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], up, corner)
        )  # left before up before the corner
        kind = kinds[y % len(kinds)]
        expected = [np.zeros_like(left), left, up, (left + up) // 2, paeth][kind]
        rows.append(bytes([kind]) + ((image[y] - expected) % 256).astype(np.uint8).tobytes())
    return b"".join(rows)


def png(image: np.ndarray, kinds: list[int], *, header: dict[int, int] | None = None, parts: int = 1) -> bytes:
    """Write a PNG; `header` changes bytes of its first chunk, `parts` is in how many chunks the pixels come."""
    height, breadth, channels = image.shape
    first = bytearray(struct.pack(">IIBBBBB", breadth, height, 8, COLOURS[channels], 0, 0, 0))
    for place, value in (header or {}).items():
        first[place] = value
    packed = zlib.compress(filtered(image, kinds))
    cut = -(-len(packed) // parts)
    body = b"".join(chunk(b"IDAT", packed[i : i + cut]) for i in range(0, len(packed), cut))
    text = chunk(b"tEXt", b"Comment\0of no interest")
    return SIGNATURE + chunk(b"IHDR", bytes(first)) + text + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [4], [4, 3, 2, 1, 0]], ids=str)
def test_every_filter_is_undone(kinds, tmp_path):
    image = pixels(7, 5, 3)
    (tmp_path / "a.png").write_bytes(png(image, kinds, parts=3))
    assert np.array_equal(read_png(tmp_path / "a.png"), image)


def test_every_colour_becomes_rgb(tmp_path):
    path = tmp_path / "a.png"
    grey, see_through, grey_through = pixels(4, 6, 1), pixels(4, 6, 4), pixels(4, 6, 2)
    path.write_bytes(png(grey, [4]))
    assert np.array_equal(read_png(path), grey.repeat(3, axis=2))
    for image in (see_through, grey_through):
        path.write_bytes(png(image, [4, 3]))
        share = image[..., -1:] / 255
        over_white = np.broadcast_to(image[..., :-1] * share + 255 * (1 - share), (4, 6, 3))
        assert np.abs(read_png(path) - over_white).max() <= 0.5


@pytest.mark.parametrize(
    ("header", "seen"),
    [
        ({8: 16}, "16 bits"),
        ({9: 3}, "a palette"),
        ({12: 1}, "interlaced rows"),
        ({9: 5}, "colour type 5"),
        ({3: 0}, "0 × 4"),
    ],
)
def test_other_pngs_are_refused_and_the_way_out_is_named(header, seen, tmp_path):
    path = tmp_path / "odd.png"
    path.write_bytes(png(pixels(4, 4, 3), [0], header=header))
    with pytest.raises(DataError, match=f"odd.png: a PNG with .*{seen}.*magick odd.png"):
        read_png(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:60],
        lambda whole: whole[:-30],
        lambda whole: whole[:50] + b"\xff" + whole[51:],
        lambda whole: SIGNATURE + chunk(b"IHDR", b"short") + chunk(b"IEND", b""),
        lambda whole: SIGNATURE + chunk(b"IEND", b""),
        lambda whole: whole.replace(whole[whole.index(b"IDAT") - 4 : -12], chunk(b"IDAT", zlib.compress(b"\x07" * 52))),
        lambda whole: whole.replace(whole[whole.index(b"IDAT") - 4 : -12], chunk(b"IDAT", zlib.compress(b"\0" * 51))),
    ],
)
def test_a_damaged_png_is_named(damage, tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(damage(png(pixels(4, 4, 3), [0])))
    with pytest.raises(DataError, match=r"broken.png: damaged"):
        read_png(path)


def test_what_is_no_png_is_named(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\xff\xd8\xff\xe0 a JPEG")
    with pytest.raises(DataError, match=r"photo.png: not a PNG"):
        open_pictures(str(tmp_path / "photo.png"))
    with pytest.raises(DataError, match=r"phto.png: no such file.*did you mean photo.png"):
        open_pictures(str(tmp_path / "phto.png"))


def test_pictures_are_found_by_every_name(tmp_path):
    images = pixels(3, 4, 5, 3)
    np.savez(tmp_path / "many.npz", images=images)
    np.save(tmp_path / "many.npy", images)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.png").write_bytes(png(images[1], [4]))
    np.save(folder / "a.npy", images[0])
    (folder / "notes.txt").write_text("no picture", encoding="utf-8")
    for name in ("many.npz", "many.npy"):
        found = open_pictures(str(tmp_path / name))
        assert np.array_equal(found.pixels, images)
        again = [open_pictures(one).pixels[0] for one in found.names]
        assert np.array_equal(again, images)
    found = open_pictures(str(folder))
    assert found.names == [str(folder / "a.npy"), str(folder / "b.png")]
    assert np.array_equal(found.pixels, images[:2])
    shape = open_pictures("shapes:count=4,seed=2#3")
    assert np.array_equal(shape.pixels[0], generated("shapes:count=4,seed=2")[0][3])
    with pytest.raises(DataError, match=r"shapes:count=4#4: no such picture; there are 4"):
        open_pictures("shapes:count=4#4")


def test_a_picture_of_another_size_is_refused_with_both_sizes(tmp_path):
    np.save(tmp_path / "a.npy", pixels(4, 4, 3))
    (tmp_path / "b.png").write_bytes(png(pixels(4, 6, 3), [0]))
    with pytest.raises(DataError, match=r"b.png: a picture of 4×6×3, expected 4×4×3, as .*a.npy; .*-resize 4x4! "):
        open_pictures(str(tmp_path))
    with pytest.raises(DataError, match=r"b.png: a picture of 4×6×3, expected 8×8×3, as those before"):
        open_pictures(str(tmp_path / "b.png"), (8, 8, 3), "as those before")


@pytest.mark.parametrize(
    ("array", "seen"),
    [
        (np.zeros((4, 4, 3)), "of float64"),
        (np.zeros(4, np.uint8), "shape (4,)"),
        (np.zeros((0, 4, 3), np.uint8), "shape (0, 4, 3)"),
        (np.array([{}]), "damaged"),
    ],
)
def test_an_array_that_is_no_picture_is_named(array, seen, tmp_path):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=f"a.npy: .*{re.escape(seen)}"):
        open_pictures(str(tmp_path / "a.npy"))


def test_a_file_of_arrays_without_images_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", pictures=pixels(2, 4, 4, 3))
    with pytest.raises(DataError, match=r"a.npz: no `images`; there are: pictures"):
        open_pictures(str(tmp_path / "a.npz"))
    whole = io.BytesIO()
    np.savez(whole, images=pixels(2, 4, 4, 3))
    (tmp_path / "b.npz").write_bytes(whole.getvalue()[:-40])
    with pytest.raises(DataError, match=r"b.npz: damaged"):
        open_pictures(str(tmp_path / "b.npz"))
    (tmp_path / "c.npy").write_bytes(whole.getvalue())
    with pytest.raises(DataError, match=r"c.npy: several arrays"):
        open_pictures(str(tmp_path / "c.npy"))
