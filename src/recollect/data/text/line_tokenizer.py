"""A line of text to ids and back, for sources and targets: a `Tokenizer`, and what a line needs besides.

`word` divides into words and punctuation: each Han character and each punctuation mark is a symbol of its own. A mark
stands where there was no blank, so that the line can be restored. Byte pairs begin with a blank, so that a word is the
same symbol at every place.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.spacing import HAN_LETTER
from recollect.data.text.tokenizer import Ids, Tokenizer

MARK = "￭"  # before a symbol: there was no blank
MOST_WORDS = 50_000
WIDE = "[" + HAN_LETTER[1:-1] + "\u3001-\u303f\uff01-\uff65]"  # Han characters and their punctuation
WORDS = re.compile(rf"{WIDE}|(?:(?!{WIDE})\w)+|[^\w\s]")
IS_WIDE = re.compile(WIDE)


class LineTokenizer:
    """Tokenises one line without the white space around it; with `lowercase` it is converted to lower case first.

    Decoding restores the line, except for runs of white space, which become one blank, blanks beside a Han character
    for `word`, and unknown symbols.

    >>> lines = rc.LineTokenizer.train("word", ["the cat sat.", "the dog."])
    >>> lines.decode(lines.encode("the cat sat."))
    'the cat sat.'
    """

    def __init__(self, kind: str, base: Tokenizer, lowercase: bool = False, scripts: Iterable[str] = ()) -> None:
        self.kind, self.base, self.lowercase = kind, base, lowercase
        self.scripts = set(scripts)  # of the training lines; empty: unknown

    @classmethod
    def train(
        cls,
        kind: str,
        lines: Iterable[str],
        vocab_size: int | None = None,
        lowercase: bool = False,
        rarest: int = 1,
    ) -> LineTokenizer:
        """Learn the symbols of some lines; the limits are as those of `Tokenizer.train`."""
        most = vocab_size or (MOST_WORDS if kind == "word" else None)
        tokenizer = cls(kind, Tokenizer("byte"), lowercase)
        base = "space" if kind == "word" else kind
        tokenizer.base = Tokenizer.train(base, map(tokenizer._prepared, lines), most, rarest)
        return tokenizer

    def for_scripts(self, scripts: Iterable[str]) -> LineTokenizer:
        """Return the same tokenizer for lines in these scripts only."""
        return LineTokenizer(self.kind, self.base, self.lowercase, scripts)

    @property
    def vocab_size(self) -> int:
        """Number of ids of the tokenizer."""
        return self.base.vocab_size

    @property
    def begin(self) -> int:
        """The id that is read before a target, the first of two after the tokenizer's own."""
        return self.vocab_size

    @property
    def end(self) -> int:
        """The id that ends a target."""
        return self.vocab_size + 1

    @property
    def model_size(self) -> int:
        """Number of ids of a model, with begin and end."""
        return self.vocab_size + 2

    @property
    def unseen(self) -> list[int]:
        """The ids that occur in no training text, and are not to be generated."""
        return self.base.unseen

    @property
    def unknown(self) -> int | None:
        """The id of symbols that are not in the vocabulary; None where there are none, as for bytes."""
        return self.base.unknown

    def unknown_in(self, line: str) -> Counter[str]:
        """Return the symbols of a line that are not in the vocabulary, and how often each occurs."""
        return self.base.unknown_in(self._prepared(line))

    def encode(self, line: str, *, strict: bool = False) -> Ids:
        """Return the ids; with `strict`, refuse unknown symbols."""
        return self.base.encode(self._prepared(line), strict=strict)

    def check_script(self, line: str, where: str, trained_on: str) -> None:
        """Raise DataError for a line whose letters are mostly of scripts that the training lines do not use."""
        letters = Counter(line)
        foreign = main_scripts(letters, 0.5) - self.scripts
        if self.scripts and foreign:
            got, known = (", ".join(sorted(names)) for names in (foreign, self.scripts))
            hint = "give the other side of the pairs, or train on such lines"
            raise DataError(f"{where}: got {got} letters, expected {known}, as in {trained_on}; {hint}")

    def decode(self, ids: Iterable[int]) -> str:
        """Return the line; bytes that are not UTF-8 become �."""
        text = self.base.decode(ids)
        return without_marks(text.split()) if self.kind == "word" else text.strip()

    def symbols(self, line: str) -> list[str]:
        """Return each symbol as text, for figures that show them one by one."""
        return [self.base.decode([int(i)]).strip().removeprefix(MARK) for i in self.encode(line)]

    def _prepared(self, line: str) -> str:
        line = " ".join((line.lower() if self.lowercase else line).split())
        if self.kind == "word":
            return " ".join(with_marks(line))
        return f" {line}" if self.kind == "bpe" and line else line

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json: the one of `Tokenizer`, with `line` added."""
        self.base.save(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        content["line"] = {"kind": self.kind, "lowercase": self.lowercase, "scripts": sorted(self.scripts)}
        write_file(Path(path), json.dumps(content, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> LineTokenizer:
        """Read a tokenizer."""
        base = Tokenizer.load(path)
        line = json.loads(Path(path).read_text(encoding="utf-8")).get("line")
        if line is None:
            raise DataError(f"{path}: a tokenizer of texts, expected one of pairs; train it with --task translate")
        return cls(line["kind"], base, line["lowercase"], line.get("scripts", ()))


def main_scripts(letters: Counter[str], share: float = 0.001) -> set[str]:
    """Return the scripts of at least this share of the letters, by their Unicode names: LATIN, CJK, CYRILLIC …

    >>> sorted(main_scripts(Counter("Über 我们, 42!")))
    ['CJK', 'LATIN']
    """
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        if letter.isalpha():
            scripts[unicodedata.name(letter, "UNKNOWN").split()[0]] += count
    return {script for script, count in scripts.items() if count >= share * scripts.total()}


def with_marks(line: str) -> list[str]:
    """Divide into words and punctuation; a symbol without a blank before it is marked where joining would add one.

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
    """Return the line that `with_marks` divided."""
    line, last = "", ""
    for symbol in symbols:
        word = symbol.removeprefix(MARK) if len(symbol) > 1 else symbol
        line += f" {word}" if last and word == symbol and _has_blank(last, word) else word
        last = word
    return line


def _has_blank(last: str, symbol: str) -> bool:
    """Return whether a blank stands between two symbols: not beside one that is written without."""
    return not (IS_WIDE.match(last[-1:]) or IS_WIDE.match(symbol))


def is_mostly_han(text: str) -> bool:
    """Return whether more than 30 % of a text's characters, blanks aside, are Han."""
    letters = re.sub(r"\s", "", text)
    return len(re.findall(HAN_LETTER, letters)) > 0.3 * len(letters)
