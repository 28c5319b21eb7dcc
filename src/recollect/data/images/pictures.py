"""Pictures in files: a .png, a .npy, the rows of a .npz, a folder of them, or the generated shapes; all of one size.

A picture has a name by which it is found again: its file's, or `images.npz#17` and `shapes#17` for one of many.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recollect.core.validate import nearest
from recollect.data.error import DataError
from recollect.data.images.png import Pixels, read_png
from recollect.data.synthetic.draw import arguments
from recollect.data.synthetic.shapes import shapes

ENDINGS = (".png", ".npy")
GENERATED = "shapes"
FORMS = "a .png, a .npy, a .npz with `images`, a folder of .png and .npy, or shapes"
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, each with its name."""

    names: list[str]
    pixels: Pixels  # (n, h, w, c)


def open_pictures(words: str, size: tuple[int, ...] | None = None, why: str = "") -> Pictures:
    """Give the pictures that words name, all of them; where `size` (h, w, c) is given, refuse others and say why."""
    words, number = _one_of_many(words)
    found = _read(words)
    if number is not None:
        if number >= len(found.names):
            raise DataError(f"{words}#{number}: no such picture; there are {len(found.names)}, from {words}#0 on")
        found = Pictures([found.names[number]], found.pixels[number : number + 1])
    if size is not None and found.pixels.shape[1:] != size:
        raise _wrong_size(found.names[0], found.pixels.shape[1:], size, why)
    return found


def generated(words: str) -> tuple[Pixels, list[str]]:
    """Give the shapes of `shapes` or `shapes:count=…,seed=…,chinese=1`, and their captions."""

    def make(count: int = 10_000, seed: int = 0, chinese: int = 0) -> tuple[Pixels, list[str]]:
        pixels, in_english, in_chinese = shapes(count, seed)
        return pixels, in_chinese if chinese else in_english

    name, _, given = words.partition(":")
    return make(**arguments(name, make, given))


def is_generated(words: str) -> bool:
    """Tell whether words name the generated shapes, with or without arguments."""
    return words.partition(":")[0] == GENERATED


def read_rows(path: Path) -> Pixels:
    """Give the pictures (n, h, w, c) of a .npz, its `images`."""
    arrays = _load(path)
    if "images" not in arrays:
        raise DataError(f"{path}: no `images`; there are: {', '.join(arrays) or 'none'}; save it as images=…")
    return _checked(path, arrays["images"], (4,))


def read_pictures(paths: Iterable[Path]) -> Pixels:
    """Give one picture a file, (n, h, w, c); one of another size than the first is refused."""
    found: dict[Path, Pixels] = {}
    for path in paths:
        found[path] = _read_picture(path)
        first = next(iter(found))
        if found[path].shape != found[first].shape:
            raise _wrong_size(str(path), found[path].shape, found[first].shape, f"as {first}")
    return np.stack(list(found.values()))


def size_in_words(shape: tuple[int, ...]) -> str:
    """Give 32×32×3: height, breadth, channels."""
    return "×".join(map(str, shape))


def _one_of_many(words: str) -> tuple[str, int | None]:
    match = None if Path(words).exists() else re.fullmatch(r"(.+)#(\d+)", words)
    return (words, None) if match is None else (match[1], int(match[2]))


def _read(words: str) -> Pictures:
    path = Path(words)
    if path.is_dir():
        return _of_folder(path)
    if is_generated(words) and not path.exists():
        return _numbered(words, generated(words)[0])
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise DataError(f"{words}: no such file or folder{near}; pictures are {FORMS}")
    if path.suffix.lower() == ".npz":
        return _numbered(words, read_rows(path))
    picture = _read_picture(path, many=True)
    return _numbered(words, picture) if picture.ndim == 4 else Pictures([words], picture[None])


def _of_folder(folder: Path) -> Pictures:
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in ENDINGS]
    if not paths:
        raise DataError(f"{folder}: no picture in it; pictures are {FORMS}")
    return Pictures([str(path) for path in paths], read_pictures(paths))


def _numbered(words: str, pixels: Pixels) -> Pictures:
    return Pictures([f"{words}#{number}" for number in range(len(pixels))], pixels)


def _read_picture(path: Path, many: bool = False) -> Pixels:
    """Give a picture (h, w, c) of a .png or .npy; of a .npy that may hold `many`, also (n, h, w, c)."""
    if path.suffix.lower() == ".png":
        return read_png(path)
    if path.suffix.lower() != ".npy":
        raise DataError(f"{path}: not a picture that is read here; pictures are {FORMS}")
    arrays = _load(path)
    if "" not in arrays:
        raise DataError(f"{path}: several arrays in one file; call it .npz, or save one array with numpy.save")
    pixels = _checked(path, arrays[""], (2, 3, 4) if many else (2, 3))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    """Give the arrays of a .npz by their names, that of a .npy by no name; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return {"": found} if isinstance(found, np.ndarray) else dict(found)
    except UNREADABLE as error:
        raise DataError(f"{path}: damaged or not an array of numpy's ({error}); take another copy") from error


def _checked(path: Path, pixels: NDArray[np.generic], axes: tuple[int, ...]) -> Pixels:
    """Refuse what is no picture: too few or too many axes, other numbers than bytes, nothing at all."""
    forms = {2: "(h, w)", 3: "(h, w, c)", 4: "(n, h, w, c)"}
    if pixels.ndim not in axes or pixels.dtype != np.uint8 or not pixels.size:
        seen, wanted = f"shape {pixels.shape} of {pixels.dtype}", " or ".join(forms[count] for count in axes)
        raise DataError(f"{path}: got {seen}, expected {wanted} of uint8; save it so with numpy")
    return pixels.astype(np.uint8, copy=False)


def _wrong_size(name: str, seen: tuple[int, ...], wanted: tuple[int, ...], why: str) -> DataError:
    return DataError(
        f"{name}: a picture of {size_in_words(seen)}, expected {size_in_words(wanted)}, {why}; "
        f"resize it: magick {Path(name).name} -resize {wanted[1]}x{wanted[0]}! new.png"
    )
