"""A corpus: a text's ids on disk, in three parts that do not overlap, read without loading them.

Ids are in plain files of uint8, uint16 or uint32, the smallest that holds the vocabulary, and the documents' ends in
files of int64; all are memory-mapped. They are built by streaming and kept in a cache under the hash of text, tokenizer
and split, so that the second run starts at once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field as member
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from recollect.core.cache import build_folder, cache_folder, is_whole, read_record
from recollect.data.error import DataError
from recollect.data.names import in_short
from recollect.data.text.framed import FramedTokenizer
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer
from recollect.data.text.source import Chunk, TextSource, open_source, to_stderr
from recollect.data.text.split import cut, split
from recollect.data.text.tokenizer import ENOUGH, IdArray, Ids, IdType, Tokenizer, choose_kind, smallest_dtype
from recollect.data.text.tokenizer_files import load_tokenizer
from recollect.data.text.vocabulary import VocabularyLimits, fit_vocabulary, notices_of

CorpusTokenizer: TypeAlias = Tokenizer | PretrainedTokenizer
PARTS = ("train", "valid", "test")
VERSION = 4  # of the files in the cache and of how text becomes ids
LEAST = 60  # characters, so that the smallest part predicts something


@dataclass(frozen=True)
class Corpus:
    """A tokenizer, learned from the training part alone or given, and the ids of three parts."""

    tokenizer: CorpusTokenizer
    train: IdArray
    valid: IdArray
    test: IdArray
    ends: dict[str, NDArray[np.int64]]  # by part: the index after each document's last symbol
    name: str  # of its folder in the cache, for `reopen_corpus`
    unknown: Mapping[str, int] = member(default_factory=dict)  # by part: symbols that are not in the vocabulary

    def unknown_id(self, part: str) -> int | None:
        """Return the id to leave out of a part's figures; None where every symbol of the part is known."""
        return self.tokenizer.unknown if self.unknown.get(part) else None


class _Text(NamedTuple):
    """A source that has been read once."""

    source: TextSource
    digest: str
    size: int  # characters


def load_corpus(
    data: str,
    *,
    tokenizer: str | None = None,
    vocab_size: int | None = None,
    vocab_for: str = "tiny",
    field: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    cache: str | Path | None = None,
    choose: Callable[[str, int], str] = choose_kind,
    given_tokenizer: CorpusTokenizer | None = None,
) -> Corpus:
    """Return DATA as a corpus, from the cache if it holds it complete.

    `valid` and `test` are texts of their own, named as DATA is. For each that is not given the last 5 % of DATA are
    held out, test after valid; the rest is trained on. Where `vocab_size` is not given, it is fitted to the text and to
    a model of the size `vocab_for`. `choose`: the default kind of tokenizer, by the text's beginning and its size.
    `given_tokenizer`: that of a trained model, which is used as it is.
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
        own = given_tokenizer
        kind = own.kind if own else tokenizer or choose(next(texts["train"].source.chunks()).text, size)
        fitted = VocabularyLimits(None, 1) if own else fit_vocabulary(kind, size, vocab_for, vocab_size)
        keys = [f"{part} {text.digest}" for part, text in texts.items()]
        keys += [] if own is None else [json.dumps(own.content())]
        name = hashlib.sha256(f"{VERSION} {kind} {tuple(fitted)} {keys}".encode()).hexdigest()[:24]
        folder = cache_folder(cache) / name
        if not is_whole(folder):
            build_folder(folder, partial(_fill, texts=texts, kind=kind, fitted=fitted, own=own))
    corpus = _open(folder)
    for notice in [] if own else notices_of(kind, corpus.tokenizer.vocab_size, fitted, vocab_size):
        to_stderr(notice)
    return corpus


def reopen_corpus(name: str, cache: str | Path | None = None) -> Corpus | None:
    """Return a corpus by its name in the cache, without its text; None if it is missing or incomplete."""
    folder = cache_folder(cache) / name
    return _open(folder) if is_whole(folder) else None


def read_corpus(data: str, tokenizer: CorpusTokenizer, field: str | None = None) -> Corpus:
    """Read all of DATA with a given tokenizer, as a test part, without the cache; unknown symbols are told."""
    ids, ends, size = [np.empty(0, dtype=np.int64)], [], 0
    unknown = Counter[str]()
    with open_source(data, field=field or "text", notify=to_stderr) as source:
        for chunk, some, is_end in _encode(tokenizer, source.chunks()):
            unknown += tokenizer.unknown_in(chunk.text) if tokenizer.count_unknown(chunk.text, some) else Counter()
            ids.append(some)
            size += len(some)
            ends += [size] if is_end else []
    if unknown:
        to_stderr(f"{in_short(data)}: {unknown_in_words(unknown, size)}")
    every, none = np.concatenate(ids), np.empty(0, dtype=np.int64)
    parts = {"train": none, "valid": none, "test": np.array(ends, dtype=np.int64)}
    return Corpus(tokenizer, none, none, every, parts, in_short(data), {"test": unknown.total()})


def unknown_in_words(unknown: Counter[str], size: int) -> str:
    """Return how many symbols of a text are unknown, and the most frequent of them, in words."""
    some = ", ".join(repr(symbol.strip() or symbol) for symbol, _ in unknown.most_common(5))
    rest = ", …" if len(unknown) > 5 else ""
    count = unknown.total()
    share = f"{count / max(size, 1):.1%}"
    return f"{count:,} of {size:,} symbols ({share}) are unknown to the run ({some}{rest}) and left out of every figure"


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


def _fill(
    folder: Path, texts: dict[str, _Text], kind: str, fitted: VocabularyLimits, own: CorpusTokenizer | None
) -> dict[str, Any]:
    """Tokenise part by part; return the record to be saved with them."""
    data = texts["train"]
    kept = [part for part in PARTS if part == "train" or part not in texts]  # of DATA
    spans = dict(zip(kept, split(data.source.chunks, data.size, len(kept) - 1), strict=True))
    every = max(1, data.size // ENOUGH) if kind == "bpe" else 1  # of a long text, chunks from all of it
    trained_on = (chunk.text for chunk in cut(data.source.chunks(), *spans["train"]))
    tokenizer = own or Tokenizer.train(kind, islice(trained_on, 0, None, every), fitted.size, fitted.rarest)
    tokenizer.save(folder / "tokenizer.json")
    dtype = smallest_dtype(tokenizer.vocab_size)
    unknown = dict[str, int]()
    for part in PARTS:
        text = texts.get(part, data)
        chunks = cut(text.source.chunks(), *spans.get(part, (0, text.size)))
        count, unknown[part] = _write(folder / part, tokenizer, chunks, dtype)
        if count - unknown[part] < 2:
            name = text.source.name
            known = count - unknown[part]
            raise DataError(f"{name}: got {known} known symbols in the {part} part, expected 2 or more; give more text")
    return {"dtype": dtype.name, "unknown": unknown}


def _encode(tokenizer: CorpusTokenizer, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Ids, bool]]:
    """Yield each chunk, its ids, and whether a document that has any ends after them."""
    is_begun = False
    encode = tokenizer.encode_part if isinstance(tokenizer, PretrainedTokenizer) else tokenizer.encode
    for chunk in chunks:
        ids = encode(chunk.text)
        is_begun = is_begun or len(ids) > 0
        yield chunk, ids, is_begun and chunk.ends
        is_begun = is_begun and not chunk.ends


def _write(path: Path, tokenizer: CorpusTokenizer, chunks: Iterator[Chunk], dtype: IdType) -> tuple[int, int]:
    """Write PATH.ids and PATH.ends, and return the number of ids, and of those that are unknown."""
    count = unknown = 0
    with path.with_suffix(".ids").open("wb") as ids, path.with_suffix(".ends").open("wb") as ends:
        for chunk, some, is_end in _encode(tokenizer, chunks):
            ids.write(some.astype(dtype).data)
            count += len(some)
            unknown += tokenizer.count_unknown(chunk.text, some)
            if is_end:
                ends.write(np.int64(count).tobytes())
    return count, unknown


# ---- reading -------------------------------------------------------------------------------------------


def _open(folder: Path) -> Corpus:
    def open_file(name: str, dtype: DTypeLike) -> IdArray:
        return np.memmap(folder / name, dtype=dtype, mode="r")

    record = read_record(folder)
    dtype = record["dtype"]
    ids = {part: open_file(f"{part}.ids", dtype) for part in PARTS}
    ends = {part: open_file(f"{part}.ends", np.int64) for part in PARTS}
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    assert not isinstance(tokenizer, FramedTokenizer)
    return Corpus(tokenizer, **ids, ends=ends, name=folder.name, unknown=record["unknown"])
