"""The tokenizer of a trained model for texts and words with labels: a word may be several ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.labels.word_coder import WordCoder
from recollect.data.text.framed import FramedTokenizer
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer
from recollect.data.text.tokenizer import CUTS, Ids, Tokenizer
from recollect.data.text.tokenizer_files import AnyTokenizer, tokenizer_of

FORMAT = "recollect-subwords"
SUBWORDS = {"char": 20, "byte": 20}  # of a word that are read, from its beginning …
USUAL_SUBWORDS = 8  # … by other tokenizers


class SubwordCoder:
    """A trained model's tokenizer: a text as ids (T,), words as rows of ids plus one, 0 after the last (W, K).

    `most`: the number of ids that the model can read; a longer text is cut, and of the words of a longer sentence fewer
    subwords are read. `frame`: the ids before and after a text, such as [CLS] and [SEP].
    """

    letter_count = 0
    width = 0  # of vectors: inputs are ids

    def __init__(self, tokenizer: AnyTokenizer, most: int | None = None) -> None:
        if isinstance(tokenizer, FramedTokenizer) and isinstance(tokenizer.base, PretrainedTokenizer):
            tokenizer = tokenizer.base  # it puts its marks around a text itself
        self.tokenizer, self.most = tokenizer, most
        self.kind = tokenizer.kind
        self.subwords = SUBWORDS.get(self.kind, USUAL_SUBWORDS)
        self.frame = frame_of(tokenizer)

    @property
    def vocab_size(self) -> int:
        """Number of ids, with the one that no subword has."""
        return self.tokenizer.vocab_size + 1

    @property
    def unknown(self) -> int | None:
        """The id that hidden words are read as: [MASK], or else that of unknown symbols."""
        if isinstance(self.tokenizer, FramedTokenizer):
            return self.tokenizer.mask
        if isinstance(self.tokenizer, PretrainedTokenizer):
            found = self.tokenizer.backend.token_to_id("[MASK]")
            return None if found is None else int(found)
        return self.tokenizer.unknown

    def encode(self, line: str) -> Ids:
        """Return the ids (T,) of a text, with those around it; a long one is cut, and keeps its last mark."""
        ids = self.tokenizer.encode(line.strip())
        if self.most is None or len(ids) <= self.most:
            return ids
        end = ids[-1:] if self.frame else ids[:0]
        return np.concatenate([ids[: self.most - len(end)], end])

    def encode_words(self, words: Sequence[str]) -> Ids:
        """Return a row of subwords for each word (W, K)."""
        found = self._subwords(words)
        left = len(words) * self.subwords if self.most is None else self.most - len(self.frame)
        if left < len(words):
            raise DataError(f"got {len(words)} words, expected at most {left}, which the model has positions for")
        each = self.subwords
        while each > 1 and sum(min(len(one), each) for one in found) > left:
            each -= 1
        rows = np.zeros((len(words), self.subwords), dtype=np.int64)
        for row, one in zip(rows, found, strict=True):
            row[: min(len(one), each)] = one[:each] + 1
        return rows

    def _subwords(self, words: Sequence[str]) -> list[Ids]:
        """Return the ids of each word, as they are in the text that the words are divided by blanks in."""
        if isinstance(self.tokenizer, PretrainedTokenizer):
            found = self._by_place(words)
        else:
            base = self.tokenizer.base if isinstance(self.tokenizer, FramedTokenizer) else self.tokenizer
            blank = "" if self.kind == "space" else " "
            found = [base.encode((blank if place else "") + word) for place, word in enumerate(words)]
        other = 0 if self.unknown is None else self.unknown
        return [one if len(one) else np.array([other]) for one in found]

    def _by_place(self, words: Sequence[str]) -> list[Ids]:
        """Return the ids of each word of a foreign tokenizer, which says where in the text each id comes from."""
        assert isinstance(self.tokenizer, PretrainedTokenizer)
        encoded = self.tokenizer.backend.encode(" ".join(words), add_special_tokens=False)
        ends = np.cumsum([len(word) + 1 for word in words]) - 1  # of each word in the text
        stops = np.array([stop for _, stop in encoded.offsets], dtype=np.int64)
        of_word = ends.searchsorted(stops, "left")
        ids = np.array(encoded.ids, dtype=np.int64)
        return [ids[of_word == number] for number in range(len(words))]

    def words(self, line: str) -> list[str]:
        """Return a line's words."""
        return line.split()

    def symbols(self, line: str) -> list[str]:
        """Return each symbol as text."""
        return [self._shown(int(i)) for i in self.encode(line)]

    def _shown(self, i: int) -> str:
        if isinstance(self.tokenizer, PretrainedTokenizer):
            return str(self.tokenizer.backend.id_to_token(i))
        marks = {}
        if isinstance(self.tokenizer, FramedTokenizer):
            marks = {self.tokenizer.begin: "[CLS]", self.tokenizer.end: "[SEP]"}
        return marks.get(i) or self.tokenizer.decode([i]).strip()

    def content(self) -> dict[str, Any]:
        """Return what is saved, as plain data: the trained model's tokenizer, and how many ids it reads."""
        return {"format": FORMAT, "most": self.most, "tokenizer": self.tokenizer.content()}

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json."""
        write_file(Path(path), json.dumps(self.content(), ensure_ascii=False).encode())

    @classmethod
    def read(cls, content: dict[str, Any], path: Path) -> SubwordCoder:
        """Return the coder of a file's content."""
        return cls(tokenizer_of(content["tokenizer"], path), content["most"])


class PartCoder(SubwordCoder):
    """A trained model's tokenizer for texts that are parts of an input, such as a query: without the ids around them.

    Where a symbol begins with the blank before it, so does a part: a word is the same symbol at every place.
    """

    @property
    def before(self) -> tuple[int, ...]:
        """The ids that a matcher reads before a query: [CLS], where the trained model has it."""
        return self.frame[:1]

    @property
    def separator(self) -> int:
        """The id that a matcher reads between a query and a text: [SEP], or else one more than the tokenizer's."""
        return self.frame[1] if self.frame else self.tokenizer.vocab_size

    def encode(self, line: str) -> Ids:
        """Return the ids (T,) of a part."""
        if isinstance(self.tokenizer, PretrainedTokenizer):
            return self.tokenizer.encode_part(line.strip())
        base = self.tokenizer.base if isinstance(self.tokenizer, FramedTokenizer) else self.tokenizer
        return base.encode(self._spaced(line))

    def _spaced(self, line: str) -> str:
        return (" " if self.kind in ("word", "bpe") and line.strip() else "") + line.strip()

    def symbols(self, line: str) -> list[str]:
        """Return each symbol as text; words and characters as they are written, also unknown ones."""
        if self.kind not in CUTS:
            return super().symbols(line)
        symbols = CUTS[self.kind](self._spaced(line))
        return symbols if self.kind == "char" else [symbol.strip() for symbol in symbols]

    def joined(self, symbols: Sequence[str], ids: Ids) -> str:
        """Return some of a part's symbols as text."""
        if self.kind not in CUTS:
            return self.tokenizer.decode(ids.tolist()).strip()
        return ("" if self.kind == "char" else " ").join(symbols)


Coder: TypeAlias = WordCoder | SubwordCoder


def load_coder(path: str | Path) -> Coder:
    """Read the tokenizer of a run on labels."""
    return load_subwords(path) or WordCoder.load(path)


def load_subwords(path: str | Path) -> SubwordCoder | None:
    """Read a trained model's tokenizer; return None for a file of another one."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error
    return SubwordCoder.read(content, path) if content.get("format") == FORMAT else None


def frame_of(tokenizer: AnyTokenizer) -> tuple[int, ...]:
    """Return the ids that a tokenizer puts before and after every text; none unless it is one on each side."""
    if isinstance(tokenizer, Tokenizer):
        return ()
    around = tokenizer.encode("").tolist()
    return tuple(around) if len(around) == 2 else ()
