"""The tokenizer of masked language models: one of ours, with the symbols that BERT puts into and around a text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.tokenizer import Ids, Tokenizer

MASK, BEGIN, END = "[MASK]", "[CLS]", "[SEP]"
MARKS = (MASK, BEGIN, END)


class FramedTokenizer:
    """A `Tokenizer` with three ids more, the last: [MASK], [CLS] before a text and [SEP] after it.

    [MASK] is written in a text as it stands; where symbols begin with the blank before them it takes that blank too.

    >>> framed = rc.FramedTokenizer(rc.Tokenizer.train("char", ["abcabc"]))
    >>> framed.encode("a[MASK]c").tolist()  # a, b, c, unknown, [MASK], [CLS], [SEP]
    [5, 0, 4, 2, 6]
    """

    def __init__(self, base: Tokenizer) -> None:
        self.base = base
        self.mask = base.vocab_size
        self.begin = base.vocab_size + 1
        self.end = base.vocab_size + 2

    @property
    def kind(self) -> str:
        """How text is divided."""
        return self.base.kind

    @property
    def vocab_size(self) -> int:
        """Number of ids, with those of the three marks."""
        return self.base.vocab_size + len(MARKS)

    @property
    def unknown(self) -> int | None:
        """The id of symbols that are not in the vocabulary; None where there are none."""
        return self.base.unknown

    @property
    def unseen(self) -> list[int]:
        """The ids that are never predicted: the marks, and symbols that occur in no training text."""
        return [*self.base.unseen, self.mask, self.begin, self.end]

    def unknown_in(self, text: str) -> Counter[str]:
        """Return the symbols of a text that are not in the vocabulary, and how often each occurs."""
        return sum((self.base.unknown_in(part) for part in self._parts(text)), Counter[str]())

    def encode(self, text: str, *, strict: bool = False) -> Ids:
        """Return the ids of a text between [CLS] and [SEP]; with `strict`, refuse unknown symbols."""
        parts: list[Sequence[int] | Ids] = [[self.begin]]
        for number, part in enumerate(self._parts(text)):
            parts += [[self.mask]] if number else []
            parts.append(self.base.encode(part, strict=strict))
        return np.concatenate([*(np.asarray(part, dtype=np.int64) for part in parts), [self.end]])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, without [CLS] and [SEP]."""
        shown: list[str] = []
        some: list[int] = []
        for i in [int(i) for i in ids if int(i) not in (self.begin, self.end)]:
            if i != self.mask:
                some.append(i)
                continue
            shown += [self.base.decode(some), f" {MASK}" if self.kind in ("word", "bpe", "space") else MASK]
            some = []
        return "".join([*shown, self.base.decode(some)])

    def _parts(self, text: str) -> list[str]:
        """Return the parts of a text before, between and after its masks."""
        parts = text.split(MASK)
        if self.kind in ("word", "bpe"):
            parts = [*(part.removesuffix(" ") for part in parts[:-1]), parts[-1]]
        return parts

    def content(self) -> dict[str, Any]:
        """Return what is saved, as plain data: that of `Tokenizer`, with the marks added."""
        return {**self.base.content(), "marks": MARKS}

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json."""
        write_file(Path(path), json.dumps(self.content(), ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> FramedTokenizer:
        """Read a tokenizer."""
        base = Tokenizer.load(path)
        if "marks" not in json.loads(Path(path).read_text(encoding="utf-8")):
            raise DataError(f"{path}: a tokenizer without [MASK]; train one with: recollect train DATA --task masked")
        return cls(base)
