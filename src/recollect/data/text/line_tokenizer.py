"""A line of text to symbols and back, for sources and targets: what `Tokenizer` does, and what a line needs besides.

`word` cuts between words and signs: each Han character and each sign is a symbol of its own. A mark says where no blank
stood, so that the line comes back. Byte pairs begin with a blank, so that a word is the same symbol wherever it stands.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.tokenizer import HAN, Ids, Tokenizer

MARK = "￭"  # before a symbol: no blank stood there
MOST_WORDS = 50_000
HAN_LETTER = "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in HAN) + "]"
WIDE = "[" + HAN_LETTER[1:-1] + "\u3001-\u303f\uff01-\uff65]"  # Han characters and the signs written with them
WORDS = re.compile(rf"{WIDE}|(?:(?!{WIDE})\w)+|[^\w\s]")
IS_WIDE = re.compile(WIDE)


class LineTokenizer:
    """Cuts one line, with all white space around it taken off; `lowercase` makes it small first.

    A line comes back as it was, but for runs of white space, which become one blank, blanks beside a Han character for
    `word`, and for what the tokenizer never saw.
    """

    def __init__(self, kind: str, base: Tokenizer, lowercase: bool = False, scripts: Iterable[str] = ()) -> None:
        self.kind, self.base, self.lowercase = kind, base, lowercase
        self.scripts = set(scripts)  # that lines are written in; none: unknown

    @classmethod
    def train(
        cls, kind: str, lines: Iterable[str], vocab_size: int | None = None, lowercase: bool = False
    ) -> LineTokenizer:
        """Learn the symbols of some lines; vocab_size limits words (50,000), byte pairs (8,000) and space (none)."""
        most = vocab_size or (MOST_WORDS if kind == "word" else None)
        tokenizer = cls(kind, Tokenizer("byte"), lowercase)
        tokenizer.base = Tokenizer.train("space" if kind == "word" else kind, map(tokenizer._prepared, lines), most)
        return tokenizer

    def for_scripts(self, scripts: Iterable[str]) -> LineTokenizer:
        """Give the same tokenizer for lines in some scripts alone."""
        return LineTokenizer(self.kind, self.base, self.lowercase, scripts)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self.base.vocab_size

    @property
    def begin(self) -> int:
        """The id that a target is begun with, one of two behind the tokenizer's own."""
        return self.vocab_size

    @property
    def end(self) -> int:
        """The id that says a target is at its end."""
        return self.vocab_size + 1

    @property
    def model_size(self) -> int:
        """How many ids a model knows: with begin and end."""
        return self.vocab_size + 2

    @property
    def unseen(self) -> list[int]:
        """The ids that no training text holds: nothing to say."""
        return self.base.unseen

    def encode(self, line: str, *, strict: bool = False) -> Ids:
        """Give the ids; with `strict`, refuse symbols that were never seen."""
        return self.base.encode(self._prepared(line), strict=strict)

    def check_script(self, line: str, where: str, wanted: str) -> None:
        """Refuse a line whose letters are mostly of scripts that the training lines do not use."""
        letters = Counter(line)
        foreign = main_scripts(letters, 0.5) - self.scripts
        if self.scripts and foreign:
            seen, known = (", ".join(sorted(names)) for names in (foreign, self.scripts))
            hint = "give the other side of the pairs, or train on such lines"
            raise DataError(f"{where}: got {seen} letters, expected {known}, as in {wanted}; {hint}")

    def decode(self, ids: Iterable[int]) -> str:
        """Give the line; bytes that are no text become �."""
        text = self.base.decode(ids)
        return without_marks(text.split()) if self.kind == "word" else text.strip()

    def symbols(self, line: str) -> list[str]:
        """Give each symbol as text, for pictures that show them one by one."""
        return [self.base.decode([int(i)]).strip().removeprefix(MARK) for i in self.encode(line)]

    def _prepared(self, line: str) -> str:
        line = " ".join((line.lower() if self.lowercase else line).split())
        if self.kind == "word":
            return " ".join(with_marks(line))
        return f" {line}" if self.kind == "bpe" and line else line

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json: that of `Tokenizer`, and what this adds to it."""
        self.base.save(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        content["line"] = {"kind": self.kind, "lowercase": self.lowercase, "scripts": sorted(self.scripts)}
        write_file(Path(path), json.dumps(content, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> LineTokenizer:
        """Read a tokenizer back."""
        base = Tokenizer.load(path)
        line = json.loads(Path(path).read_text(encoding="utf-8")).get("line")
        if line is None:
            raise DataError(f"{path}: a tokenizer of texts, expected one of pairs; train it with --task translate")
        return cls(line["kind"], base, line["lowercase"], line.get("scripts", ()))


def main_scripts(letters: Counter[str], share: float = 0.001) -> set[str]:
    """Give the scripts of at least a share of the letters, by Unicode's names: LATIN, CJK, CYRILLIC …

    >>> sorted(main_scripts(Counter("Über 我们, 42!")))
    ['CJK', 'LATIN']
    """
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        if letter.isalpha():
            scripts[unicodedata.name(letter, "UNKNOWN").split()[0]] += count
    return {script for script, count in scripts.items() if count >= share * scripts.total()}


def with_marks(line: str) -> list[str]:
    """Cut into words and signs; one that no blank stood before is marked where a blank would come back.

    >>> with_marks("Don't, 我也是。")
    ['Don', "￭'", '￭t', '￭,', '我', '也', '是', '。']
    """
    symbols: list[str] = []
    last, end = "", 0
    for found in WORDS.finditer(line):
        symbol = found.group()
        is_marked = found.start() == end and end > 0 and _has_blank(last, symbol)
        symbols.append(MARK + symbol if is_marked else symbol)
        last, end = symbol, found.end()
    return symbols


def without_marks(symbols: Iterable[str]) -> str:
    """Give the line that was cut."""
    return "".join(_pieces(symbols))


def _pieces(symbols: Iterable[str]) -> Iterator[str]:
    last = ""
    for symbol in symbols:
        word = symbol.removeprefix(MARK) if len(symbol) > 1 else symbol
        yield f" {word}" if last and word == symbol and _has_blank(last, word) else word
        last = word


def _has_blank(last: str, symbol: str) -> bool:
    """Between two symbols a blank stands, unless one of them is written without."""
    return not (IS_WIDE.match(last[-1:]) or IS_WIDE.match(symbol))


def is_mostly_han(text: str) -> bool:
    """Tell whether more than 30 % of a text's characters, blanks aside, are Han."""
    letters = re.sub(r"\s", "", text)
    return len(re.findall(HAN_LETTER, letters)) > 0.3 * len(letters)
