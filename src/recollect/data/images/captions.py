"""Pictures and their captions: pixels and ids on disk, in three parts that share no picture.

Built once and kept in a cache under the hash of the pictures, the captions and everything that decides their ids.
The tokenizer's ids are followed by two more, `begin` and `end` of a caption.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recollect.core.cache import build_folder, cache_folder, is_whole, read_record
from recollect.core.types import JsonObject
from recollect.data.error import DataError
from recollect.data.images.caption_files import Captioned, CaptionSource, open_captions
from recollect.data.images.pictures import Pixels, size_in_words
from recollect.data.pairs.pair_rows import Encoded, PairPart, open_part, part_in_memory, write_part
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.source import to_stderr
from recollect.data.text.tokenizer import IdType, smallest_dtype
from recollect.data.text.vocabulary import VocabularyLimits, fit_vocabulary, notices_of

PARTS = ("train", "valid", "test")
VERSION = 2  # of the files in the cache and of how captions become ids
SHARE = 20  # one group in SHARE is held out for each part
LEAST = 3  # groups, one for each part


@dataclass(frozen=True)
class CaptionPart:
    """Pictures, and the captions of each."""

    pictures: Pixels  # (n, h, w, c)
    pairs: PairPart  # source: the number and the name of a picture; target: a caption

    def __len__(self) -> int:
        return len(self.pairs)

    def pictures_of(self, numbers: ArrayLike) -> Pixels:
        """Return the pictures (B, h, w, c) of the captions with these numbers in the part."""
        return np.asarray(self.pictures[np.asarray(self.pairs.sources.flat)[np.asarray(numbers)]])


@dataclass(frozen=True)
class Captions:
    """A tokenizer, learned from the training part alone, and three parts.

    A model's vocabulary is the tokenizer's and two ids more.
    """

    tokenizer: LineTokenizer
    train: CaptionPart
    valid: CaptionPart
    test: CaptionPart
    name: str  # of its folder in the cache, for `reopen_captions`

    @property
    def begin(self) -> int:
        """The id that is read before a caption."""
        return self.tokenizer.begin

    @property
    def end(self) -> int:
        """The id that ends a caption."""
        return self.tokenizer.end

    @property
    def size(self) -> tuple[int, ...]:
        """Height, width and channels of every picture."""
        return self.train.pictures.shape[1:]


class CaptionSettings(NamedTuple):
    """What decides how captions become ids."""

    kind: str
    vocabulary: VocabularyLimits
    lowercase: bool


def load_captions(
    data: str,
    *,
    tokenizer: str | None = None,
    field: str | None = None,
    vocab_size: int | None = None,
    vocab_for: str = "tiny",
    lowercase: bool = False,
    valid: str | None = None,
    test: str | None = None,
    cache: str | Path | None = None,
) -> Captions:
    """Return DATA as pictures with captions, from the cache if it holds them complete.

    `valid` and `test` are data of their own, kept unchanged. For each that is not given one group in 20 is held out,
    chosen by the hash of its name: a picture with all its captions, or the rows with one value of the third `field`.
    Symbols are words and single Han characters unless `tokenizer` names another kind. Where `vocab_size` is not given,
    it is fitted to the captions and to a model of the size `vocab_for`.
    """
    given = {part: text for part, text in zip(PARTS, (data, valid, test), strict=True) if text is not None}
    read = {part: open_captions(text, field) for part, text in given.items()}
    for source in read.values():
        _check_size(source, read["train"].size, f"as in {data}")
    kind = tokenizer or "word"
    characters = sum(len(row.caption) for row in read["train"].rows)
    settings = CaptionSettings(kind, fit_vocabulary(kind, characters, vocab_for, vocab_size), lowercase)
    keys = [f"{part} {_digest(source)}" for part, source in read.items()]
    name = hashlib.sha256(f"captions {VERSION} {tuple(settings)} {keys}".encode()).hexdigest()[:24]
    folder = cache_folder(cache) / name
    if not is_whole(folder):
        build_folder(folder, partial(_fill, read=read, settings=settings))
    captions = _open(folder)
    fitted = notices_of(kind, captions.tokenizer.vocab_size, settings.vocabulary, vocab_size)
    for notice in [*read_record(folder)["notices"], *fitted]:
        to_stderr(notice)
    return captions


def reopen_captions(name: str, cache: str | Path | None = None) -> Captions | None:
    """Return captions by their name in the cache; None if they are missing or incomplete."""
    folder = cache_folder(cache) / name
    return _open(folder) if is_whole(folder) else None


def read_caption_part(
    data: str, tokenizer: LineTokenizer, size: tuple[int, ...], field: str | None = None
) -> CaptionPart:
    """Read all of DATA as one part to test on, without the cache; pictures of another `size` are refused."""
    source = open_captions(data, field)
    _check_size(source, size, "as what was trained on")
    dtype = _dtype(tokenizer, source)
    return CaptionPart(source.pictures.pixels, part_in_memory(_encoded(source, source.rows, tokenizer), dtype))


def _check_size(source: CaptionSource, expected: tuple[int, ...], why: str) -> None:
    if source.size != expected:
        sizes = f"{size_in_words(source.size)}, expected {size_in_words(expected)}, {why}"
        resize = f"magick mogrify -resize {expected[1]}x{expected[0]}! *.png"
        first = source.pictures.names[0]
        raise DataError(f"{source.name}: got pictures of {sizes}, the first is {first}; resize them: {resize}")


def _digest(source: CaptionSource) -> str:
    digest = hashlib.sha256(f"{source.size}".encode())
    digest.update(source.pictures.pixels.tobytes())
    for row in source.rows:
        digest.update(f"{source.pictures.names[row.picture]}\t{tuple(row)}\n".encode())
    return digest.hexdigest()


# ---- building ------------------------------------------------------------------------------------------


def _fill(folder: Path, read: dict[str, CaptionSource], settings: CaptionSettings) -> JsonObject:
    """Divide, learn the tokenizer, write part after part; return the record to be saved with them."""
    rows, notices = divide(read)
    lines = (row.caption for row in rows["train"])
    fitted = settings.vocabulary
    tokenizer = LineTokenizer.train(settings.kind, lines, fitted.size, settings.lowercase, fitted.rarest)
    tokenizer.save(folder / "tokenizer.json")
    dtype = _dtype(tokenizer, *read.values())
    for part in PARTS:
        source = read.get(part, read["train"])
        used = list(dict.fromkeys(row.picture for row in rows[part]))
        renumbered = {picture: number for number, picture in enumerate(used)}
        np.save(folder / f"{part}.npy", source.pictures.pixels[used])
        write_part(folder, part, _encoded(source, rows[part], tokenizer, renumbered), dtype)
    return {"dtype": dtype.name, "notices": notices}


def divide(read: dict[str, CaptionSource]) -> tuple[dict[str, list[Captioned]], list[str]]:
    """Return each part's captions, no group and no picture in two parts, and notices of what was left out for that.

    A part that was given is kept unchanged, even where it holds a picture of another part.
    """
    train = read["train"]
    part_of = _groups(train, [part for part in PARTS if part not in read])
    rows = {part: list(source.rows) for part, source in read.items()}
    rows |= {part: [row for row in train.rows if part_of[row.group] == part] for part in PARTS if part not in read}
    rows["train"] = [row for row in train.rows if part_of[row.group] == "train"]
    return _without_known(rows, read)


def _groups(source: CaptionSource, held_out: list[str]) -> dict[str, str]:
    """Return the part of each group: the first groups by hash are held out."""
    names = list(dict.fromkeys(row.group for row in source.rows))
    if len(names) < LEAST:
        expected = f"expected {LEAST} or more to train, validate and test on"
        raise DataError(f"{source.name}: got {len(names)} different pictures or groups, {expected}")
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    count = max(round(len(names) / SHARE), 1)
    parts = [part for part in held_out for _ in range(count)]
    return dict.fromkeys(names, "train") | dict(zip(names, parts, strict=False))


def _without_known(
    rows: dict[str, list[Captioned]], read: dict[str, CaptionSource]
) -> tuple[dict[str, list[Captioned]], list[str]]:
    """Return held-out parts without pictures whose pixels are in an earlier part, whatever their group."""
    known, counts = set[str](), Counter[str]()
    for part in PARTS:
        digests = read.get(part, read["train"]).digests()
        before = [row for row in rows[part] if digests[row.picture] in known]
        if before and part in read:
            counts[f"{part}: %s also in what came before, kept as given"] += len(before)
        elif before:
            counts[f"{part}: %s left out, the picture came before"] += len(before)
            rows[part] = [row for row in rows[part] if digests[row.picture] not in known]
        known |= {digests[row.picture] for row in rows[part]}
        if not rows[part]:
            advice = "give more pictures" if part == "train" else f"give data of its own with --set {part}=…"
            raise DataError(f"{read['train'].name}: {part}: no caption is left; {advice}")
    return rows, [words % f"{n} {'caption' if n == 1 else 'captions'}" for words, n in counts.items()]


def _encoded(
    source: CaptionSource, rows: Iterable[Captioned], tokenizer: LineTokenizer, numbers: dict[int, int] | None = None
) -> Iterator[Encoded]:
    for row in rows:
        number = row.picture if numbers is None else numbers[row.picture]
        yield np.array([number]), source.pictures.names[row.picture], tokenizer.encode(row.caption), row.caption


def _dtype(tokenizer: LineTokenizer, *sources: CaptionSource) -> IdType:
    return smallest_dtype(max(tokenizer.vocab_size, *(len(source.pictures.names) for source in sources)))


# ---- reading -------------------------------------------------------------------------------------------


def _open(folder: Path) -> Captions:
    dtype, tokenizer = read_record(folder)["dtype"], LineTokenizer.load(folder / "tokenizer.json")
    pictures = {part: np.load(folder / f"{part}.npy", mmap_mode="r") for part in PARTS}
    parts = {part: CaptionPart(pictures[part], open_part(folder, part, dtype)) for part in PARTS}
    return Captions(tokenizer, **parts, name=folder.name)
