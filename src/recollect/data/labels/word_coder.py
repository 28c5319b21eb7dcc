"""Words to ids, with or without the ids of their letters: the tokenizer of models that label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.line_tokenizer import MARK, LineTokenizer, with_marks
from recollect.data.text.tokenizer import Ids, Tokenizer

LETTERS = 20  # of a word that are read, from its beginning


class WordCoder:
    """A line's symbols as ids (T,), or as ids of words and of their letters (T, 1 + 20).

    Letters keep their case where words are in lower case. They are numbered from 1; 0 follows the last.
    """

    width: ClassVar[int] = 0  # of vectors: inputs are ids
    before: ClassVar[tuple[int, ...]] = ()  # the ids that a matcher reads before a query
    most: ClassVar[int | None] = None  # the number of ids that a model can read: any

    def __init__(self, lines: LineTokenizer, letters: Tokenizer | None = None) -> None:
        self.lines = lines
        self.letters = letters
        self._spelled: dict[str, Ids] = {}

    @classmethod
    def learn(
        cls,
        kind: str,
        texts: Callable[[], Iterable[str]],
        *,
        vocab_size: int | None = None,
        least: int = 1,
        lowercase: bool = False,
        spelled: bool = False,
    ) -> WordCoder:
        """Learn the symbols that occur at least `least` times; `texts` is called once or twice."""
        if kind not in ("word", "space") and (least > 1 or spelled):
            raise DataError(f"tokenizer: got {kind}, which has no words; spelled and least need word or space")
        coder = cls(LineTokenizer.train(kind, texts(), vocab_size, lowercase))
        if least > 1:
            counts = Counter(symbol for text in texts() for symbol in coder.lines._prepared(text).split())
            frequent = sum(count >= least for count in counts.values())
            coder = cls(LineTokenizer.train(kind, texts(), min(frequent + 1, vocab_size or frequent + 1), lowercase))
        letters = Tokenizer.train("char", (word for text in texts() for word in coder.words(text))) if spelled else None
        return cls(coder.lines, letters)

    @property
    def kind(self) -> str:
        """How lines are divided."""
        return self.lines.kind

    @property
    def vocab_size(self) -> int:
        """Number of ids of words."""
        return self.lines.vocab_size

    @property
    def unknown(self) -> int | None:
        """The id of unknown words; None: every symbol is known."""
        return None if self.kind in ("bpe", "byte") else self.lines.base._unknown

    @property
    def letter_count(self) -> int:
        """Number of ids of letters, 0 where none are read."""
        return 0 if self.letters is None else self.letters.vocab_size

    def words(self, line: str) -> list[str]:
        """Return a line's words as they are written."""
        words = with_marks(" ".join(line.split())) if self.kind == "word" else line.split()
        return [word.removeprefix(MARK) if len(word) > 1 else word for word in words]

    def encode(self, line: str) -> Ids:
        """Return the ids (T,), or (T, 1 + L)."""
        ids = self.lines.encode(line)
        if self.letters is None:
            return ids
        letters = [self._letters(word) for word in self.words(line)]
        return np.concatenate([ids[:, None], np.array(letters, dtype=np.int64).reshape(-1, LETTERS)], axis=1)

    def encode_words(self, words: Sequence[str]) -> Ids:
        """Return one id for each word, or one row of ids."""
        return self.encode(" ".join("".join(word.split()) or "_" for word in words))

    def _letters(self, word: str) -> Ids:
        found = self._spelled.get(word)
        if found is None:
            assert self.letters is not None
            found = np.zeros(LETTERS, dtype=np.int64)
            ids = self.letters.encode(word[:LETTERS]) + 1
            found[: len(ids)] = ids
            self._spelled[word] = found
        return found

    def symbols(self, line: str) -> list[str]:
        """Return each symbol as text."""
        return self.words(line) if self.kind in ("word", "space") else self.lines.symbols(line)

    @property
    def separator(self) -> int:
        """The id that a matcher reads between a query and a text."""
        return self.vocab_size

    def joined(self, symbols: Sequence[str], ids: Ids) -> str:
        """Return some of a line's symbols as text; words as they were written, also unknown ones."""
        return " ".join(symbols) if self.kind in ("word", "space") else self.lines.decode(ids)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json: the one of the lines, with the letters added."""
        self.lines.save(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        content["letters"] = None if self.letters is None else self.letters.symbols
        write_file(Path(path), json.dumps(content, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> WordCoder:
        """Read a tokenizer."""
        lines = LineTokenizer.load(path)
        letters = json.loads(Path(path).read_text(encoding="utf-8")).get("letters")
        return cls(lines, None if letters is None else Tokenizer("char", letters))
