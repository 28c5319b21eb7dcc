"""A corpus: a text's ids on disk, in three parts that do not overlap, read without loading them.

Ids lie in plain files of uint16, or uint32 where the vocabulary is larger, that are memory-mapped. They are built by
streaming and kept in a cache under the hash of text, tokenizer and split, so that the second run starts at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError
from recollect.data.text import open_source, to_stderr
from recollect.data.tokenizer import Tokenizer, choose_kind

PARTS = ("train", "valid", "test")
SHARES = (0.9, 0.05, 0.05)
VERSION = 1  # of the files in the cache and of how text becomes ids
LEAST = 60  # characters, so that the smallest part predicts something

Pieces = Callable[[], Iterator[str]]


@dataclass(frozen=True)
class Corpus:
    """A tokenizer and the ids of three contiguous parts; the tokenizer has seen the first alone."""

    tokenizer: Tokenizer
    train: NDArray[Any]
    valid: NDArray[Any]
    test: NDArray[Any]


def load_corpus(
    data: str, *, tokenizer: str | None = None, field: str | None = None, cache: str | Path | None = None
) -> Corpus:
    """Give DATA as a corpus, from the cache where it is there and whole."""
    with open_source(data, field=field or "text", notify=to_stderr) as source:

        def pieces() -> Iterator[str]:
            return (piece.text for piece in source.pieces())

        digest, size = _hash(pieces())
        if size < LEAST:
            raise DataError(f"{data}: seen {size} characters, wanted at least {LEAST} to train, validate and test on")
        kind = tokenizer or choose_kind(next(pieces()), size)
        name = hashlib.sha256(f"{VERSION} {digest} {kind} {SHARES}".encode()).hexdigest()[:24]
        folder = Path(cache or _cache()) / name
        if not _is_whole(folder):
            _build(folder, pieces, size, kind)
    dtype = _parts(folder)["dtype"]
    parts = [np.memmap(folder / f"{part}.ids", dtype=dtype, mode="r") for part in PARTS]
    return Corpus(Tokenizer.load(folder / "tokenizer.json"), *parts)


def _hash(pieces: Iterator[str]) -> tuple[str, int]:
    """Hash the text itself, so that the same text in another format is found in the cache; also give its length."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece.encode())
        size += len(piece)
    return digest.hexdigest(), size


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recollect"


def _cut(pieces: Iterator[str], start: int, stop: int) -> Iterator[str]:
    """Give the characters from start to stop of a text that comes in pieces."""
    place = 0
    for piece in pieces:
        part = piece[max(start - place, 0) : max(stop - place, 0)]
        if part:
            yield part
        place += len(piece)


def _build(folder: Path, pieces: Pieces, size: int, kind: str) -> None:
    """Tokenise part by part into a folder beside, and rename it when whole."""
    beside = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    borders = [0, round(size * SHARES[0]), round(size * (SHARES[0] + SHARES[1])), size]
    tokenizer = Tokenizer.train(kind, _cut(pieces(), borders[0], borders[1]))
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
    counts = {}
    for part, start, stop in zip(PARTS, borders, borders[1:], strict=False):
        ids = (tokenizer.encode(piece).astype(dtype) for piece in _cut(pieces(), start, stop))
        with (beside / f"{part}.ids").open("wb") as file:
            counts[part] = sum(file.write(some.tobytes()) for some in ids)
    tokenizer.save(beside / "tokenizer.json")
    (beside / "parts.json").write_text(json.dumps({"bytes": counts, "dtype": dtype.name}), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(beside, folder)


def _parts(folder: Path) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads((folder / "parts.json").read_text(encoding="utf-8"))
    return parts


def _is_whole(folder: Path) -> bool:
    try:
        sizes = _parts(folder)["bytes"]
        return all((folder / f"{part}.ids").stat().st_size == sizes[part] for part in PARTS)
    except (OSError, ValueError, KeyError):
        return False
