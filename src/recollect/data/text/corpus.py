"""A corpus: a text's ids on disk, in three parts that do not overlap, read without loading them.

Ids are in plain files of uint8, uint16 or uint32, the smallest that holds the vocabulary, and the documents' ends in
files of int64; all are memory-mapped. They are built by streaming and kept in a cache under the hash of text, tokenizer
and split, so that the second run starts at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from recollect.core.cache import build_folder, cache_folder, is_whole, read_record
from recollect.data.error import DataError
from recollect.data.names import in_short
from recollect.data.text.source import Chunk, TextSource, open_source, to_stderr
from recollect.data.text.split import cut, split
from recollect.data.text.tokenizer import IdArray, Ids, IdType, Tokenizer, choose_kind, smallest_dtype

PARTS = ("train", "valid", "test")
VERSION = 2  # of the files in the cache and of how text becomes ids
LEAST = 60  # characters, so that the smallest part predicts something


@dataclass(frozen=True)
class Corpus:
    """A tokenizer, learned from the training part alone, and the ids of three parts."""

    tokenizer: Tokenizer
    train: IdArray
    valid: IdArray
    test: IdArray
    ends: dict[str, NDArray[np.int64]]  # by part: the index after each document's last symbol
    name: str  # of its folder in the cache, for `reopen_corpus`


class _Text(NamedTuple):
    """A source that has been read once."""

    source: TextSource
    digest: str
    size: int  # characters


def load_corpus(
    data: str,
    *,
    tokenizer: str | None = None,
    field: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    cache: str | Path | None = None,
) -> Corpus:
    """Return DATA as a corpus, from the cache if it holds it complete.

    `valid` and `test` are texts of their own, named as DATA is. For each that is not given the last 5 % of DATA are
    held out, test after valid; the rest is trained on.
    """
    given = {part: text for part, text in zip(PARTS, (data, valid, test), strict=True) if text is not None}
    if list(given.values()).count("-") > 1:
        raise DataError("-: standard input can be one text only; give the others as files")
    with ExitStack() as stack:
        texts = {}
        for part, name in given.items():
            source = stack.enter_context(open_source(name, field=field or "text", notify=to_stderr))
            texts[part] = _Text(source, *_hash(source.chunks()))
        size = texts["train"].size
        if size < LEAST:
            raise DataError(
                f"{in_short(data)}: got {size} characters, expected at least {LEAST} to train, validate and test on"
            )
        kind = tokenizer or choose_kind(next(texts["train"].source.chunks()).text, size)
        keys = [f"{part} {text.digest}" for part, text in texts.items()]
        name = hashlib.sha256(f"{VERSION} {kind} {keys}".encode()).hexdigest()[:24]
        folder = cache_folder(cache) / name
        if not is_whole(folder):
            build_folder(folder, partial(_fill, texts=texts, kind=kind))
    return _open(folder)


def reopen_corpus(name: str, cache: str | Path | None = None) -> Corpus | None:
    """Return a corpus by its name in the cache, without its text; None if it is missing or incomplete."""
    folder = cache_folder(cache) / name
    return _open(folder) if is_whole(folder) else None


def read_ids(data: str, tokenizer: Tokenizer, field: str | None = None) -> tuple[Ids, NDArray[np.int64]]:
    """Read all of DATA as ids, with the ends of its documents, without the cache."""
    ids, ends, size = [np.empty(0, dtype=np.int64)], [], 0
    with open_source(data, field=field or "text", notify=to_stderr) as source:
        for some, is_end in _encode(tokenizer, source.chunks()):
            ids.append(some)
            size += len(some)
            ends += [size] if is_end else []
    return np.concatenate(ids), np.array(ends, dtype=np.int64)


def _hash(chunks: Iterator[Chunk]) -> tuple[str, int]:
    """Return a hash of text and ends, by which the same documents in another format are found, and the size."""
    text, ends, size = hashlib.sha256(), hashlib.sha256(), 0
    for chunk in chunks:
        text.update(chunk.text.encode())
        size += len(chunk.text)
        if chunk.ends:
            ends.update(f"{size} ".encode())
    return text.hexdigest() + ends.hexdigest(), size


# ---- building ------------------------------------------------------------------------------------------


def _fill(folder: Path, texts: dict[str, _Text], kind: str) -> dict[str, Any]:
    """Tokenise part by part; return the record to be saved with them."""
    data = texts["train"]
    kept = [part for part in PARTS if part == "train" or part not in texts]  # of DATA
    spans = dict(zip(kept, split(data.source.chunks, data.size, len(kept) - 1), strict=True))
    tokenizer = Tokenizer.train(kind, (chunk.text for chunk in cut(data.source.chunks(), *spans["train"])))
    tokenizer.save(folder / "tokenizer.json")
    dtype = smallest_dtype(tokenizer.vocab_size)
    for part in PARTS:
        text = texts.get(part, data)
        chunks = cut(text.source.chunks(), *spans.get(part, (0, text.size)))
        count = _write(folder / part, _encode(tokenizer, chunks), dtype)
        if count < 2:
            name = text.source.name
            raise DataError(f"{name}: got {count} symbols in the {part} part, expected 2 or more; give more text")
    return {"dtype": dtype.name}


def _encode(tokenizer: Tokenizer, chunks: Iterator[Chunk]) -> Iterator[tuple[Ids, bool]]:
    """Yield ids chunk by chunk, and whether a document that has any ends after them."""
    is_begun = False
    for chunk in chunks:
        ids = tokenizer.encode(chunk.text)
        is_begun = is_begun or len(ids) > 0
        yield ids, is_begun and chunk.ends
        is_begun = is_begun and not chunk.ends


def _write(path: Path, encoded: Iterator[tuple[Ids, bool]], dtype: IdType) -> int:
    """Write PATH.ids and PATH.ends, and return the number of ids."""
    count = 0
    with path.with_suffix(".ids").open("wb") as ids, path.with_suffix(".ends").open("wb") as ends:
        for some, is_end in encoded:
            ids.write(some.astype(dtype).data)
            count += len(some)
            if is_end:
                ends.write(np.int64(count).tobytes())
    return count


# ---- reading -------------------------------------------------------------------------------------------


def _open(folder: Path) -> Corpus:
    def open_file(name: str, dtype: DTypeLike) -> IdArray:
        return np.memmap(folder / name, dtype=dtype, mode="r")

    dtype = read_record(folder)["dtype"]
    ids = {part: open_file(f"{part}.ids", dtype) for part in PARTS}
    ends = {part: open_file(f"{part}.ends", np.int64) for part in PARTS}
    return Corpus(Tokenizer.load(folder / "tokenizer.json"), **ids, ends=ends, name=folder.name)
