"""Text to ids and back, by symbols: characters, bytes, words, byte pairs (BPE, by Hugging Face tokenizers), or `space`,
what stands between white space, for a text that is already tokenised.

Text may be divided after any line end and encoded part by part: the ids are the same.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tokenizers
from numpy.typing import NDArray

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.spacing import HAN_LETTER, checked

FORMAT, VERSION = "recollect-tokenizer", 1
KINDS = ("char", "byte", "word", "bpe", "space")
UNKNOWN = {"char": "\ufffd", "word": "<unk>", "space": "<unk>"}  # shown for a symbol that is not in the training text
FREQUENT = 1000  # words that are kept however rare they are: a short text has few that occur twice
ENOUGH = 1 << 22  # characters from which byte pairs are learned at most: more would only take longer
MOST_KNOWN = 1 << 20  # words whose byte pairs are kept
LONGEST_KNOWN = 64  # characters of such a word: a line without blanks is one word, and hardly ever comes again
RUN_OF_BLANKS = re.compile(r" (?:\s|$)")
Ids: TypeAlias = NDArray[np.int64]
IdArray: TypeAlias = NDArray[Any]  # ids on disk, in the smallest type that holds them
IdType: TypeAlias = np.dtype[np.generic]


class Tokenizer:
    """Divides text into symbols of one kind, and numbers them.

    char, word and space have one more id, the last, for unknown symbols; where a text for `space` has `<unk>` among its
    symbols, as the Penn Treebank does, that one is used instead.

    >>> tokenizer = rc.Tokenizer.train("char", ["abcabc"])
    >>> tokenizer.encode("cab").tolist(), tokenizer.decode([2, 0, 1])
    ([2, 0, 1], 'cab')
    """

    def __init__(self, kind: str, symbols: list[str] | None = None, pairs: tokenizers.Tokenizer | None = None) -> None:
        self.kind, self.symbols, self._pairs = kind, symbols or [], pairs
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self._known_words: dict[str, list[int]] = {}  # bpe: ids of the words met so far
        self._unknown = self._ids.get(UNKNOWN[kind], len(self.symbols)) if kind == "space" else len(self.symbols)
        if kind == "char":
            self._table = np.full(sys.maxunicode + 1, self._unknown)  # by code point
            self._table[_codes("".join(self.symbols))] = np.arange(len(self.symbols))

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], vocab_size: int | None = None, rarest: int = 1) -> Tokenizer:
        """Learn the symbols of some texts; vocab_size limits words (50,000), byte pairs (8,000) and space (none).

        Words that occur less often than `rarest` are unknown, except for the most frequent thousand.
        Words are not learned from a script without spaces, such as Chinese: sentences would become words.
        """
        if kind not in KINDS:
            raise DataError(f"tokenizer: got {kind!r}, expected one of {', '.join(KINDS)}")
        if kind == "byte":
            return cls(kind)
        if kind == "bpe":
            return cls(kind, pairs=_train_pairs(texts, vocab_size or 8000))
        if kind == "char":
            is_seen = np.zeros(sys.maxunicode + 1, dtype=bool)
            for text in texts:
                is_seen[_codes(text)] = True
            return cls(kind, [chr(code) for code in np.flatnonzero(is_seen)])
        counts = Counter(chain.from_iterable(map(CUTS[kind], checked(kind, texts))))
        limit = vocab_size or (50_000 if kind == "word" else len(counts) + 1)
        most = limit if kind == "space" and UNKNOWN[kind] in counts else limit - 1  # one is for unknown words
        ranked = enumerate(counts.most_common(most))
        return cls(kind, [word for rank, (word, count) in ranked if count >= rarest or rank < FREQUENT])

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        if self._pairs is not None:
            return self._pairs.get_vocab_size()
        return 256 if self.kind == "byte" else max(len(self.symbols), self._unknown + 1)

    def encode(self, text: str, *, strict: bool = False) -> Ids:
        """Return the ids; with `strict`, refuse unknown symbols."""
        if self._pairs is not None:
            return self._encode_pairs(text)
        if self.kind == "byte":
            return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
        if strict:
            for place, symbol in enumerate(CUTS[self.kind](text)):
                if symbol not in self._ids:
                    raise DataError(f"symbol {symbol!r} at place {place} is not in the text that was trained on")
        if self.kind == "char":
            return np.asarray(self._table[_codes(text)])
        return np.fromiter((self._ids.get(part, self._unknown) for part in CUTS[self.kind](text)), dtype=np.int64)

    def _encode_pairs(self, text: str) -> Ids:
        """Return the ids of byte pairs: each distinct word is encoded once, since no pair crosses the blank before one.

        Words repeat, so that a megabyte takes a fraction of the time of encoding it as one string.
        """
        pairs = self._pairs
        assert pairs is not None
        words = _spaced_words(text)
        distinct = {word for word in words if len(word) <= LONGEST_KNOWN}
        if len(self._known_words) + len(distinct) > MOST_KNOWN:
            self._known_words = {}
        known = self._known_words
        new = list(distinct.difference(known))
        for word, found in zip(new, pairs.encode_batch_fast(new), strict=True):
            known[word] = found.ids
        ids = (known[word] if word in known else pairs.encode(word).ids for word in words)
        return np.fromiter(chain.from_iterable(ids), dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are not UTF-8 become �."""
        numbers = [int(i) for i in ids]
        if self._pairs is not None:
            text: str = self._pairs.decode(numbers, skip_special_tokens=False)
            return text
        if self.kind == "byte":
            return bytes(numbers).decode("utf-8", errors="replace")
        shown = [*self.symbols, UNKNOWN[self.kind]]
        symbols = [shown[i] for i in numbers]
        return "".join(symbols) if self.kind != "space" else _spaced(symbols)

    @property
    def unknown(self) -> int | None:
        """The id of symbols that are not in the vocabulary; None where there are none, as for bytes."""
        return self._unknown if self.kind in UNKNOWN else None

    def unknown_in(self, text: str) -> Counter[str]:
        """Return the symbols of a text that are not in the vocabulary, and how often each occurs."""
        if self.kind not in UNKNOWN:
            return Counter()
        found = Counter(CUTS[self.kind](text))
        return Counter({symbol: count for symbol, count in found.items() if symbol not in self._ids})

    def count_unknown(self, text: str, ids: Ids) -> int:
        """Return how many of a text's symbols are not in the vocabulary; a `<unk>` that the text itself has is."""
        count = 0 if self.unknown is None else int((ids == self.unknown).sum())
        is_own = self._unknown < len(self.symbols)
        return sum(self.unknown_in(text).values()) if count and is_own else count

    @property
    def unseen(self) -> list[int]:
        """The ids that occur in no training text, and are not to be generated."""
        return [self._unknown] if self.kind in UNKNOWN and self._unknown == len(self.symbols) else []

    def stream(self, after: str = "") -> IncrementalDecoder:
        """Return a decoder that continues a text id by id."""
        return IncrementalDecoder(self, after)

    def content(self) -> dict[str, Any]:
        """Return what is saved, as plain data."""
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": self.kind, "symbols": self.symbols}
        return content | {"pairs": None if self._pairs is None else json.loads(self._pairs.to_str())}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Tokenizer:
        """Return the tokenizer of what was saved."""
        pairs = content["pairs"]
        backend = None if pairs is None else tokenizers.Tokenizer.from_str(json.dumps(pairs))
        return cls(content["kind"], content["symbols"], backend)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json: to a file beside it, which is then renamed."""
        write_file(Path(path), json.dumps(self.content(), ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a tokenizer."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise DataError(f"{path}: not a tokenizer of this version")
            return cls.of_content(content)
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error


class IncrementalDecoder:
    """Decodes id by id; the bytes of an incomplete character are kept until it is complete."""

    def __init__(self, tokenizer: Tokenizer, after: str = "") -> None:
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pairs = tokenizers.decoders.DecodeStream(skip_special_tokens=False)
        self._last = "\n" if not after or after[-1].isspace() else after  # space: decides whether a blank precedes

    def step(self, id: int) -> str | None:
        """Return the text that is complete with this id, None if there is none."""
        if self._tokenizer._pairs is not None:
            chunk: str | None = self._pairs.step(self._tokenizer._pairs, int(id))
            return chunk
        if self._tokenizer.kind == "byte":
            return self._bytes.decode(bytes([int(id)])) or None
        symbol = self._tokenizer.decode([id])
        if self._tokenizer.kind != "space":
            return symbol
        before, self._last = self._last, symbol
        return _spaced([symbol], before)


def smallest_dtype(vocab_size: int) -> IdType:
    """Return the smallest type that holds every id."""
    return np.dtype(next(t for t in (np.uint8, np.uint16, np.uint32) if vocab_size <= np.iinfo(t).max + 1))


def choose_kind(sample: str, size: int) -> str:
    """Return `char` where more than 30 % are Han and for less than five million characters; else `bpe`."""
    han = len(re.findall(HAN_LETTER, sample))
    return "char" if han > 0.3 * len(sample) or size < 5_000_000 else "bpe"


def _words(text: str) -> list[str]:
    """Divide into words, each with the space before it, and line ends: joined they are the text."""
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
        words = body.split(" ")
        parts += [word if i == 0 else " " + word for i, word in enumerate(words) if i or word]
        parts += [end] if end else []
    return parts


def _spaced_words(text: str) -> list[str]:
    """Divide lines into words, each with the blank before it, where a pre-token of byte pairs always begins."""
    words: list[str] = []
    for line in io.StringIO(text, newline="\n"):
        first, *others = line.split(" ")
        words.append(first)
        if RUN_OF_BLANKS.search(line) is None:
            words.extend(map(" ".__add__, others))
            continue
        for word in others:
            if word and not word[0].isspace():
                words.append(" " + word)
            else:
                words[-1] += " " + word  # a run of blanks is a pre-token of its own
    return words


def _between_spaces(text: str) -> list[str]:
    """Divide into what stands between white space, and line ends."""
    lines = [line.split() for line in text.split("\n")]
    return [symbol for line in lines[:-1] for symbol in (*line, "\n")] + lines[-1]


CUTS: dict[str, Callable[[str], list[str]]] = {"char": list, "word": _words, "space": _between_spaces}


def _spaced(symbols: list[str], before: str = "\n") -> str:
    """Join with one blank between two symbols, and none beside a line end."""
    pairs = pairwise([before, *symbols])
    return "".join(symbol if "\n" in (last, symbol) else f" {symbol}" for last, symbol in pairs)


def _codes(text: str) -> NDArray[np.uint32]:
    """Return the code points; much faster than `ord` of each character."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _train_pairs(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Learn byte pairs; none crosses a line end, so that lines may be encoded one by one."""

    def lines() -> Iterator[str]:
        size = 0
        for text in texts:
            yield from io.StringIO(text, newline="\n")
            size += len(text)
            if size >= ENOUGH:
                return

    pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
    to_lines = tokenizers.pre_tokenizers.Split("\n", "merged_with_previous")
    to_words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([to_lines, to_words])
    pairs.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    pairs.train_from_iterator(lines(), trainer)
    return pairs
