"""Pictures in files: PNG, JPEG, WebP and GIF (read by Pillow), numpy arrays, folders, or the generated shapes.

All pictures of a data set have one size. Every picture has a name: that of its file, or `images.npz#17` and
`shapes#17` for one of many.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from recollect.data.error import DataError, did_you_mean
from recollect.data.synthetic.draw import arguments
from recollect.data.synthetic.shapes import shapes

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # Pillow reads many more, and each is more code that a file can attack
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".npy")
GENERATED = "shapes"
FORMS = "a .png, .jpg, .webp, .gif or .npy, a .npz with `images`, a folder of them, or shapes"
GROUND = 255  # what is behind a transparent pixel: white
MOST = 1 << 26  # pixels: a file that claims more would fill the memory when it is unpacked
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
# What Pillow's decoders raise on a damaged file.
DAMAGED = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, each with its name."""

    names: list[str]
    pixels: Pixels  # (n, h, w, c)


def open_pictures(words: str, size: tuple[int, ...] | None = None, why: str = "") -> Pictures:
    """Return all pictures that `words` name; where `size` (h, w, c) is given, refuse others and name the reason."""
    one_of_many = None if Path(words).exists() else re.fullmatch(r"(.+)#(\d+)", words)
    found = _read(words if one_of_many is None else one_of_many[1])
    if one_of_many is not None:
        name, number = one_of_many[1], int(one_of_many[2])
        if number >= len(found.names):
            raise DataError(f"{words}: no such picture; there are {len(found.names)}, from {name}#0 on")
        found = Pictures([found.names[number]], found.pixels[number : number + 1])
    if size is not None and found.pixels.shape[1:] != size:
        raise _wrong_size(found.names[0], found.pixels.shape[1:], size, why)
    return found


def generated(words: str) -> tuple[Pixels, list[str]]:
    """Return the shapes of `shapes` or `shapes:count=…,seed=…,chinese=1`, and their captions."""

    def make(count: int = 10_000, seed: int = 0, chinese: int = 0) -> tuple[Pixels, list[str]]:
        pixels, in_english, in_chinese = shapes(count, seed)
        return pixels, in_chinese if chinese else in_english

    name, _, given = words.partition(":")
    return make(**arguments(name, make, given))


def is_generated(words: str) -> bool:
    """Return whether `words` name the generated shapes, with or without arguments."""
    return words.partition(":")[0] == GENERATED


def read_rows(path: Path) -> Pixels:
    """Read the pictures (n, h, w, c) of a .npz, its `images`."""
    arrays = _load(path)
    if "images" not in arrays:
        raise DataError(f"{path}: no `images`; there are: {', '.join(arrays) or 'none'}; save it as images=…")
    return _checked(path, arrays["images"], (4,))


def read_pictures(paths: Iterable[Path]) -> Pixels:
    """Read one picture a file, (n, h, w, c); one of another size than the first is refused."""
    found: dict[Path, Pixels] = {}
    for path in paths:
        found[path] = _read_picture(path)
        first = next(iter(found))
        if found[path].shape != found[first].shape:
            raise _wrong_size(str(path), found[path].shape, found[first].shape, f"as {first}")
    return np.stack(list(found.values()))


def read_image(path: Path) -> Pixels:
    """Read a PNG, JPEG, WebP or GIF as RGB (h, w, 3), upright; the content decides on the format, not the name.

    Grey is repeated three times, of 16 bits to a channel the upper 8 are kept, transparent pixels lie over white, and
    of an animation the first frame is read. A photo is turned as its EXIF orientation says.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    try:
        # A warning about metadata concerns no pixel; a warning of a decompression bomb does.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _decoded(content, path)
    except UnidentifiedImageError as error:
        advice = f"pictures are {FORMS}; convert it: magick {path.name} new.png"
        raise DataError(f"{path}: not a PNG, JPEG, WebP or GIF, or its header is damaged; {advice}") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _too_large(path, "too many pixels") from error
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"{path}: damaged, it cannot be read to its end ({error}); take another copy") from error


def _decoded(content: bytes, path: Path) -> Pixels:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > MOST:
            raise _too_large(path, f"{image.width} × {image.height} pixels")
        image.verify()  # the checksums of a PNG, which are not looked at when it is decoded; leaves the image unusable
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        image.load()
        return _as_rgb(ImageOps.exif_transpose(image))


def _as_rgb(image: Image.Image) -> Pixels:
    """Return pixels (h, w, 3)."""
    if image.mode.startswith("I"):  # grey of 16 bits: the upper 8, as Pillow does where there are colours
        grey = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if "transparency" not in image.info and image.getbands()[-1] not in ("A", "a"):
        return np.array(image.convert("RGB"))
    pixels = np.asarray(image.convert("RGBA"))
    alpha = pixels[..., 3:].astype(np.uint32)  # (h, w, 1)
    over_white = (pixels[..., :3] * alpha + GROUND * (255 - alpha) + 127) // 255
    return over_white.astype(np.uint8)


def _too_large(path: Path, got: str) -> DataError:
    advice = f"resize it: magick {path.name} -resize 512x512 new.png"
    return DataError(f"{path}: got {got}, expected at most {MOST:,} of them; {advice}")


def size_in_words(shape: tuple[int, ...]) -> str:
    """Return 32×32×3: height, width, channels."""
    return "×".join(map(str, shape))


def _read(words: str) -> Pictures:
    path = Path(words)
    if path.is_dir():
        paths = [inside for inside in sorted(path.iterdir()) if inside.suffix.lower() in ENDINGS]
        if not paths:
            raise DataError(f"{path}: no picture in it; pictures are {FORMS}")
        return Pictures([str(inside) for inside in paths], read_pictures(paths))
    if is_generated(words) and not path.exists():
        return _numbered(words, generated(words)[0])
    if not path.is_file():
        raise DataError(f"{words}: no such file or folder{did_you_mean(path)}; pictures are {FORMS}")
    if path.suffix.lower() == ".npz":
        return _numbered(words, read_rows(path))
    picture = _read_picture(path, many=True)
    return _numbered(words, picture) if picture.ndim == 4 else Pictures([words], picture[None])


def _numbered(words: str, pixels: Pixels) -> Pictures:
    return Pictures([f"{words}#{number}" for number in range(len(pixels))], pixels)


def _read_picture(path: Path, many: bool = False) -> Pixels:
    """Read the picture (h, w, c) of a file; of a .npy that may hold `many`, also (n, h, w, c)."""
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: not a picture that is read here; pictures are {FORMS}")
    if path.suffix.lower() != ".npy":
        return read_image(path)
    arrays = _load(path)
    if "" not in arrays:
        raise DataError(f"{path}: several arrays in one file; call it .npz, or save one array with numpy.save")
    pixels = _checked(path, arrays[""], (2, 3, 4) if many else (2, 3))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of a .npz by their names, that of a .npy by no name; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return {"": found} if isinstance(found, np.ndarray) else dict(found)
    except UNREADABLE as error:
        raise DataError(f"{path}: damaged or not a numpy array ({error}); take another copy") from error


def _checked(path: Path, pixels: NDArray[np.generic], axes: tuple[int, ...]) -> Pixels:
    """Refuse what is no picture: too few or too many axes, other numbers than bytes, nothing at all."""
    forms = {2: "(h, w)", 3: "(h, w, c)", 4: "(n, h, w, c)"}
    if pixels.ndim not in axes or pixels.dtype != np.uint8 or not pixels.size:
        got = f"shape {pixels.shape} of {pixels.dtype}"
        expected = " or ".join(forms[count] for count in axes)
        raise DataError(f"{path}: got {got}, expected {expected} of uint8; save it so with numpy")
    return pixels.astype(np.uint8, copy=False)


def _wrong_size(name: str, got: tuple[int, ...], expected: tuple[int, ...], why: str) -> DataError:
    return DataError(
        f"{name}: got a picture of {size_in_words(got)}, expected {size_in_words(expected)}, {why}; "
        f"resize it: magick {Path(name).name} -resize {expected[1]}x{expected[0]}! new.png"
    )
