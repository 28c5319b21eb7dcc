"""The tokenizer of masked language models, with the symbols that BERT puts into and around a text: ours, or BERT's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.pretrained_tokenizer import FORMAT as PRETRAINED, PretrainedTokenizer
from recollect.data.text.tokenizer import Ids, Tokenizer

MASK, BEGIN, END = "[MASK]", "[CLS]", "[SEP]"
MARKS = (MASK, BEGIN, END)
SPACED = ("word", "bpe", "space", "pretrained")  # kinds that show a blank before [MASK]


class FramedTokenizer:
    """A `Tokenizer` with three ids more, the last: [MASK], [CLS] before a text and [SEP] after it.

    [MASK] is written in a text as it stands; where symbols begin with the blank before them it takes that blank too.
    Somebody else's tokenizer has the three among its own ids; one without them is refused.

    >>> framed = rc.FramedTokenizer(rc.Tokenizer.train("char", ["abcabc"]))
    >>> framed.encode("a[MASK]c").tolist()  # a, b, c, unknown, [MASK], [CLS], [SEP]
    [5, 0, 4, 2, 6]
    """

    def __init__(self, base: Tokenizer | PretrainedTokenizer) -> None:
        self.base = base
        size = base.vocab_size
        if isinstance(base, PretrainedTokenizer):
            self.mask, self.begin, self.end = (base.id_of(mark) for mark in MARKS)
            self.unseen = sorted({*base.special, self.mask, self.begin, self.end})  # the ids that are never predicted
            self._encode: Callable[[str], Ids] = base.encode_part
        else:
            self.mask, self.begin, self.end = size, size + 1, size + 2
            self.unseen = [*base.unseen, size, size + 1, size + 2]
            self._encode = base.encode

    @property
    def kind(self) -> str:
        """How text is divided."""
        return self.base.kind

    @property
    def vocab_size(self) -> int:
        """Number of ids, with those of the three marks."""
        return max(self.base.vocab_size, self.end + 1)

    @property
    def unknown(self) -> int | None:
        """The id of symbols that are not in the vocabulary; None where there are none."""
        return self.base.unknown

    def unknown_in(self, text: str) -> Counter[str]:
        """Return the symbols of a text that are not in the vocabulary, and how often each occurs."""
        return sum((self.base.unknown_in(part) for part in self._parts(text)), Counter[str]())

    def encode(self, text: str) -> Ids:
        """Return the ids of a text between [CLS] and [SEP]."""
        parts: list[Sequence[int] | Ids] = [[self.begin]]
        for number, part in enumerate(self._parts(text)):
            parts += [[self.mask]] if number else []
            parts.append(self._encode(part))
        return np.concatenate([*(np.asarray(part, dtype=np.int64) for part in parts), [self.end]])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, without [CLS] and [SEP]."""
        shown: list[str] = []
        some: list[int] = []
        for i in [int(i) for i in ids if int(i) not in (self.begin, self.end)]:
            if i != self.mask:
                some.append(i)
                continue
            shown += [self.base.decode(some), f" {MASK}" if self.kind in SPACED else MASK]
            some = []
        last = self.base.decode(some)
        is_after = bool(shown) and bool(last) and self.kind == "pretrained"  # its words have no blank of their own
        return "".join([*shown, " " if is_after else "", last])

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
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            is_framed = "marks" in content
            is_foreign = content["format"] == PRETRAINED
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error
        if not is_framed:
            raise DataError(f"{path}: a tokenizer without [MASK]; train one with: recollect train DATA --task masked")
        return cls(PretrainedTokenizer.of_content(content) if is_foreign else Tokenizer.load(path))
