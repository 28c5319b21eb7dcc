"""Symbols to ids and back: characters, bytes, words, or byte pairs (BPE, by Hugging Face tokenizers)."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from recollect.data.error import DataError
from recollect.saving import write_file

FORMAT, VERSION = "recollect-tokenizer", 1
KINDS = ("char", "byte", "word", "bpe")
UNKNOWN = {"char": "\ufffd", "word": "<unk>"}  # shown for what was not in the training text
HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
Ids = NDArray[np.int64]


class Tokenizer:
    """One way to cut text into symbols. char and word have one id more, the last, for what they never saw."""

    def __init__(self, kind: str, symbols: list[str] | None = None, pairs: tokenizers.Tokenizer | None = None) -> None:
        self.kind, self.symbols, self._pairs = kind, symbols or [], pairs
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], vocab_size: int | None = None) -> Tokenizer:
        """Learn the symbols of some texts; vocab_size limits words (50,000) and byte pairs (8,000)."""
        if kind not in KINDS:
            raise DataError(f"tokenizer: seen {kind!r}, wanted one of {', '.join(KINDS)}")
        if kind == "byte":
            return cls(kind)
        if kind == "bpe":
            return cls(kind, pairs=_train_pairs(texts, vocab_size or 8000))
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text if kind == "char" else _words(text))
        if kind == "char":
            return cls(kind, sorted(counts))
        return cls(kind, [word for word, _ in counts.most_common((vocab_size or 50_000) - 1)])

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        if self._pairs is not None:
            return self._pairs.get_vocab_size()
        return 256 if self.kind == "byte" else len(self.symbols) + 1

    def encode(self, text: str, *, strict: bool = False) -> Ids:
        """Give the ids; with `strict`, refuse symbols that were never seen."""
        if self._pairs is not None:
            return np.array(self._pairs.encode(text).ids, dtype=np.int64)
        if self.kind == "byte":
            return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
        parts = text if self.kind == "char" else _words(text)
        unknown = len(self.symbols)
        ids = np.fromiter((self._ids.get(part, unknown) for part in parts), dtype=np.int64)
        if strict and (ids == unknown).any():
            place = int((ids == unknown).argmax())
            raise DataError(f"symbol {list(parts)[place]!r} at place {place} is not in the text that was trained on")
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text; bytes that are no text become �."""
        numbers = [int(i) for i in ids]
        if self._pairs is not None:
            text: str = self._pairs.decode(numbers, skip_special_tokens=False)
            return text
        if self.kind == "byte":
            return bytes(numbers).decode("utf-8", errors="replace")
        shown = [*self.symbols, UNKNOWN[self.kind]]
        return "".join(shown[i] for i in numbers)

    def stream(self) -> Decoding:
        """Begin to decode id by id."""
        return Decoding(self)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json beside its place and rename."""
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": self.kind, "symbols": self.symbols}
        content["pairs"] = None if self._pairs is None else json.loads(self._pairs.to_str())
        write_file(Path(path), json.dumps(content, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a tokenizer back."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise DataError(f"{path}: not a tokenizer of this version")
            pairs = content["pairs"]
            backend = None if pairs is None else tokenizers.Tokenizer.from_str(json.dumps(pairs))
            return cls(content["kind"], content["symbols"], backend)
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error


class Decoding:
    """Text that grows id by id; an unfinished character waits."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pairs = tokenizers.decoders.DecodeStream(skip_special_tokens=False)

    def step(self, id: int) -> str | None:
        """Give the text that is certain now."""
        if self._tokenizer._pairs is not None:
            piece: str | None = self._pairs.step(self._tokenizer._pairs, int(id))
            return piece
        if self._tokenizer.kind == "byte":
            return self._bytes.decode(bytes([int(id)])) or None
        return self._tokenizer.decode([id])


def choose_kind(sample: str, size: int) -> str:
    """Take characters where more than 30 % of them are Han, and for a text below five megabytes; else byte pairs."""
    han = sum(any(low <= ord(c) <= high for low, high in HAN) for c in sample)
    return "char" if han > 0.3 * len(sample) or size < 5_000_000 else "bpe"


def _words(text: str) -> list[str]:
    """Cut into words, each with the space before it, and line ends: joined they are the text again."""
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
        words = body.split(" ")
        parts += [word if i == 0 else " " + word for i, word in enumerate(words) if i or word]
        parts += [end] if end else []
    return parts


def _train_pairs(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    pairs.train_from_iterator(_lines(texts), trainer)
    return pairs


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from text.splitlines(keepends=True)
