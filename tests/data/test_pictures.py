"""Pictures come in as they are: PNG, JPEG, WebP, GIF, arrays, folders; what is none is refused by name."""

from __future__ import annotations

import io
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recollect.data.error import DataError
from recollect.data.images import pictures
from recollect.data.images.pictures import generated, open_pictures, read_image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LOSSLESS = {"png": {}, "webp": {"lossless": True, "exact": True}}
FORMATS = ("png", "jpg", "webp", "gif")


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def smooth(height: int, width: int) -> np.ndarray:
    """Return a picture that every format keeps nearly as it is."""
    y, x = np.mgrid[:height, :width]
    return np.stack([8 * y, 6 * x, 4 * (x + y)], axis=2).astype(np.uint8)


def save(path: Path, image: np.ndarray, **options: object) -> None:
    Image.fromarray(image).save(path, **options)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def encoded(form: str, image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, {"jpg": "jpeg"}.get(form, form))
    return file.getvalue()


@pytest.mark.parametrize("form", LOSSLESS)
def test_pixels_are_kept(form, tmp_path):
    image = pixels(7, 5, 3)
    save(tmp_path / f"a.{form}", image, **LOSSLESS[form])
    assert np.array_equal(read_image(tmp_path / f"a.{form}"), image)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read_and_left_as_it_is(form, tmp_path):
    path, image = tmp_path / f"a.{form}", smooth(24, 32)
    save(path, image)
    before = path.read_bytes()
    found = open_pictures(str(path)).pixels[0]
    assert found.shape == image.shape
    assert np.abs(found.astype(int) - image).mean() < 8  # gif has 256 colours, jpeg and webp are lossy
    assert path.read_bytes() == before


def test_the_content_decides_not_the_name(tmp_path):
    (tmp_path / "photo.png").write_bytes(encoded("jpg", smooth(8, 8)))
    assert read_image(tmp_path / "photo.png").shape == (8, 8, 3)


@pytest.mark.parametrize("form", LOSSLESS)
def test_what_is_transparent_lies_over_white(form, tmp_path):
    image = pixels(4, 6, 4)
    save(tmp_path / f"a.{form}", image, **LOSSLESS[form])
    share = image[..., -1:] / 255
    over_white = image[..., :-1] * share + 255 * (1 - share)
    assert np.abs(read_image(tmp_path / f"a.{form}") - over_white).max() <= 0.5


def test_grey_becomes_rgb(tmp_path):
    path = tmp_path / "a.png"
    grey, grey_through = pixels(4, 6), pixels(4, 6, 2)
    save(path, grey)
    assert np.array_equal(read_image(path), grey[..., None].repeat(3, axis=2))
    save(path, grey_through)
    share = grey_through[..., -1:] / 255
    over_white = np.broadcast_to(grey_through[..., :-1] * share + 255 * (1 - share), (4, 6, 3))
    assert np.abs(read_image(path) - over_white).max() <= 0.5
    save(path, grey > 127)  # one bit
    assert np.array_equal(read_image(path)[..., 1], np.where(grey > 127, 255, 0))
    deep = grey.astype(np.uint16) * 256 + 255
    save(path, deep)
    assert np.array_equal(read_image(path), grey[..., None].repeat(3, axis=2))


@pytest.mark.parametrize("form", ["png", "gif"])
def test_palettes_are_looked_up(form, tmp_path):
    path = tmp_path / f"a.{form}"
    colours = [(10, 20, 30), (200, 100, 0), (0, 0, 255)]
    image = Image.new("P", (3, 1))
    image.putpalette([value for colour in colours for value in colour])
    image.putdata([0, 1, 2])
    image.save(path)
    assert read_image(path)[0].tolist() == [list(colour) for colour in colours]
    image.save(path, transparency=1)
    assert read_image(path)[0].tolist() == [[10, 20, 30], [255, 255, 255], [0, 0, 255]]


def test_a_colour_that_is_said_to_be_transparent_is_white(tmp_path):
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], dtype=np.uint8))
    image.save(tmp_path / "a.png", transparency=(1, 2, 3))
    assert read_image(tmp_path / "a.png")[0].tolist() == [[255, 255, 255], [4, 5, 6]]


def test_a_cmyk_photo_becomes_rgb(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(read_image(tmp_path / "a.jpg") - np.array([255.0, 0, 0])).max() <= 4


@pytest.mark.parametrize("form", ["gif", "webp", "png"])
def test_of_an_animation_the_first_frame_is_read(form, tmp_path):
    path = tmp_path / f"a.{form}"
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue", "lime")]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=50)
    assert np.abs(read_image(path) - np.array([255.0, 0, 0])).max() <= 4


@pytest.mark.parametrize("form", ["jpg", "png", "webp"])
def test_a_photo_stands_upright(form, tmp_path):
    wide = smooth(16, 24)
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: turn it by 90° clockwise
    save(tmp_path / f"a.{form}", wide, exif=exif)
    found = read_image(tmp_path / f"a.{form}")
    assert found.shape == (24, 16, 3)
    assert np.abs(found.astype(int) - np.rot90(wide, k=-1)).mean() < 8


def test_warnings_about_metadata_concern_no_pixel(tmp_path):
    """A directory that is cut off makes Pillow warn, and warnings are errors here."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0"
    save(tmp_path / "a.jpg", smooth(8, 8), exif=exif)
    assert read_image(tmp_path / "a.jpg").shape == (8, 8, 3)


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_that_was_cut_off_is_named(form, tmp_path):
    path, whole = tmp_path / f"cut.{form}", encoded(form, pixels(40, 40, 3))
    for share in (0.2, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(DataError, match=rf"cut.{form}: (damaged.*|not a PNG.* damaged.*); "):
            read_image(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:60],
        lambda whole: whole[:-30],
        lambda whole: whole[:50] + bytes([whole[50] ^ 255]) + whole[51:],
        lambda whole: SIGNATURE + chunk(b"IHDR", b"short") + chunk(b"IEND", b""),
        lambda whole: SIGNATURE + chunk(b"IEND", b""),
        lambda whole: whole.replace(whole[whole.index(b"IDAT") - 4 : -12], chunk(b"IDAT", zlib.compress(b"\x07" * 52))),
        lambda whole: whole.replace(whole[whole.index(b"IDAT") - 4 : -12], chunk(b"IDAT", zlib.compress(b"\0" * 51))),
    ],
    ids=["cut", "end", "checksum", "short header", "no header", "no such filter", "pixels missing"],
)
def test_a_damaged_png_is_named(damage, tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(damage(encoded("png", pixels(4, 4, 3))))
    with pytest.raises(DataError, match=r"broken.png: .*damaged.*; (take another copy|pictures are)"):
        read_image(path)


@pytest.mark.parametrize("form", FORMATS)
def test_whatever_is_damaged_nothing_but_a_data_error_comes_of_it(form, tmp_path):
    path, whole = tmp_path / f"a.{form}", encoded(form, pixels(12, 12, 3))
    draw = np.random.default_rng(1)
    for _ in range(150):
        content = bytearray(whole)
        for place in draw.integers(0, len(whole), 3):
            content[place] = draw.integers(256)
        path.write_bytes(content)
        with suppress(DataError):
            assert read_image(path).dtype == np.uint8


def test_a_file_that_claims_too_many_pixels_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "bomb.png"
    for side in (9_000, 12_000, 50_000):  # above our limit, above the one Pillow warns at, above the one it refuses at
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        path.write_bytes(SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", b"x") + chunk(b"IEND", b""))
        with pytest.raises(DataError, match=r"bomb.png: got .*pixels, expected at most 67,108,864 .*; resize it"):
            read_image(path)
    save(path, pixels(4, 4, 3))
    monkeypatch.setattr(pictures, "MOST", 15)
    with pytest.raises(DataError, match=r"bomb.png: got 4 × 4 pixels, expected at most 15"):
        read_image(path)


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"words that are no picture")
    with pytest.raises(DataError, match=r"photo.png: not a PNG, JPEG, WebP or GIF.*convert it: magick photo.png"):
        open_pictures(str(tmp_path / "photo.png"))
    save(tmp_path / "scan.bmp", pixels(4, 4, 3))
    with pytest.raises(DataError, match=r"scan.bmp: not a picture that is read here; pictures are a .png, .jpg"):
        open_pictures(str(tmp_path / "scan.bmp"))
    (tmp_path / "scan.bmp").rename(tmp_path / "scan.gif")
    with pytest.raises(DataError, match=r"scan.gif: not a PNG, JPEG, WebP or GIF"):
        open_pictures(str(tmp_path / "scan.gif"))
    with pytest.raises(DataError, match=r"phto.png: no such file.*did you mean photo.png"):
        open_pictures(str(tmp_path / "phto.png"))


def test_a_folder_may_mix_formats(tmp_path):
    for form in FORMATS:
        save(tmp_path / f"{form}.{form.upper()}", smooth(8, 8))
    found = open_pictures(str(tmp_path))
    assert [Path(name).name for name in found.names] == ["gif.GIF", "jpg.JPG", "png.PNG", "webp.WEBP"]
    assert found.pixels.shape == (4, 8, 8, 3)


def test_pictures_are_found_by_every_name(tmp_path):
    images = pixels(3, 4, 5, 3)
    np.savez(tmp_path / "many.npz", images=images)
    np.save(tmp_path / "many.npy", images)
    folder = tmp_path / "folder"
    folder.mkdir()
    save(folder / "b.png", images[1])
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
    save(tmp_path / "b.png", pixels(4, 6, 3))
    with pytest.raises(DataError, match=r"b.png: got a picture of 4×6×3, expected 4×4×3, as .*a.npy; .*-resize 4x4! "):
        open_pictures(str(tmp_path))
    with pytest.raises(DataError, match=r"b.png: got a picture of 4×6×3, expected 8×8×3, as those before"):
        open_pictures(str(tmp_path / "b.png"), (8, 8, 3), "as those before")


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.zeros((4, 4, 3)), "of float64"),
        (np.zeros(4, np.uint8), "shape (4,)"),
        (np.zeros((0, 4, 3), np.uint8), "shape (0, 4, 3)"),
        (np.array([{}]), "damaged"),
    ],
)
def test_an_array_that_is_no_picture_is_named(array, got, tmp_path):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=f"a.npy: .*{re.escape(got)}"):
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
