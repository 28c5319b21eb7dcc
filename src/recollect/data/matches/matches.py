"""Questions as ids in three parts, and their batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.labels.labelled import PARTS, Vocabulary, divided, given_parts
from recollect.data.labels.subword_coder import PartCoder
from recollect.data.labels.word_coder import WordCoder
from recollect.data.matches.match_files import Columns, read_questions
from recollect.data.rounds import Numbers, Rounds
from recollect.data.synthetic.match_generators import Question
from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.data.text.tokenizer import Ids

MatchCoder: TypeAlias = WordCoder | PartCoder


@dataclass(frozen=True)
class Kind:
    """Whether answers are pointed at, and the most symbols of one, as a file of the run."""

    points: bool
    longest: int = 1

    @property
    def pointers(self) -> int:
        """Scores of a step: one, or those of an answer's first and last symbol."""
        return 2 if self.longest > 1 else 1

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_file(path, json.dumps({"points": self.points, "longest": self.longest}).encode())

    @classmethod
    def load(cls, path: Path) -> Kind:
        """Read it back."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Match:
    """A question as ids: for each text the query, a separator and the text."""

    ids: Sequence[Ids]
    begins: int  # where the texts begin
    right: NDArray[np.bool_]  # (P, T) where an answer begins and ends, or (1, C) which texts are right
    question: Question

    @property
    def length(self) -> int:
        """Length of the longest sequence."""
        return max(len(each) for each in self.ids)


@dataclass(frozen=True)
class Matches:
    """A tokenizer of the training part, the kind of questions, and three parts."""

    tokenizer: MatchCoder
    kind: Kind
    train: Sequence[Match]
    valid: Sequence[Match]
    test: Sequence[Match]
    name: str


def load_matches(
    data: str, vocabulary: Vocabulary, columns: Columns, valid: str | None = None, test: str | None = None
) -> Matches:
    """Return questions as ids; parts that are not given are drawn from DATA, a tenth each."""
    given = {part: list(read_questions(name, columns)) for part, name in given_parts(data, valid, test).items()}
    parts = divided(given, data, lambda one: f"{one.query} {one.texts}")
    texts = [text for one in parts["train"] for text in (one.query, *one.texts)]
    coder = vocabulary.learn(texts, "char" if is_mostly_han("".join(texts[:1000])) else "word")
    assert isinstance(coder, MatchCoder)
    points = parts["train"][0].answer is not None
    longest = max((len(coder.symbols(one.answer or "")) for one in parts["train"]), default=1) if points else 1
    kind = Kind(points, longest)
    encoded = {part: encode_matches(rows, coder, kind) for part, rows in parts.items()}
    return Matches(coder, kind, **encoded, name=_digest(parts, vocabulary))


def encode_matches(questions: Iterable[Question], coder: MatchCoder, kind: Kind) -> list[Match]:
    """Return questions as ids; a DataError names one of the other kind, and an answer that is not in its text."""
    found = []
    for one in questions:
        if (one.answer is None) == kind.points:
            expected = "an answer in a text" if kind.points else "texts with labels"
            raise DataError(f"{one.where}: got the other kind of question, expected {expected}, as in training")
        found.append(encode_match(one, coder, kind))
    return found


def encode_match(question: Question, coder: MatchCoder, kind: Kind) -> Match:
    """Return a question as ids; one without an answer, to be predicted, has no right place.

    A text is cut where it is longer than a trained model can read.
    """
    query = np.concatenate([coder.before, coder.encode(question.query), [coder.separator]]).astype(np.int64)
    ids = [np.concatenate([query, coder.encode(text)])[: coder.most] for text in question.texts]
    begins = len(query)
    if coder.most is not None and begins >= coder.most:
        got = f"{question.where}: got a query of {begins} symbols with the marks around it"
        raise DataError(f"{got}, expected less than the {coder.most} that the trained model reads; shorten it")
    if not kind.points:
        return Match(ids, begins, np.array([question.right], dtype=bool), question)
    right = np.zeros((kind.pointers, len(ids[0])), dtype=bool)
    if question.answer:
        places = occurrences(coder.symbols(question.answer), coder.symbols(question.texts[0]))
        if not places:
            raise DataError(f"{question.where}: the answer {question.answer!r} does not occur in its text; correct it")
        places = [(first, last) for first, last in places if begins + last < len(ids[0])]
        if not places:
            got = f"{question.where}: the answer {question.answer!r} stands behind the {coder.most} symbols"
            raise DataError(f"{got} that the trained model reads; shorten the text")
        for first, last in places:
            right[0, begins + first] = True
            right[-1, begins + last] = True
    return Match(ids, begins, right, question)


def shown_symbols(match: Match, coder: MatchCoder) -> list[str]:
    """Return what a question's first sequence consists of, each id as text."""
    query, text = coder.symbols(match.question.query), coder.symbols(match.question.texts[0])
    marks = ["[CLS]"] * len(coder.before)
    return [*marks, *query, "|", *text[: len(match.ids[0]) - match.begins]]


def occurrences(part: Sequence[str], whole: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and the last place of a sequence of symbols, wherever it occurs in another."""
    size = len(part)
    starts = range(len(whole) - size + 1) if size else ()
    return [(i, i + size - 1) for i in starts if list(whole[i : i + size]) == list(part)]


def _digest(parts: dict[str, list[Question]], vocabulary: Vocabulary) -> str:
    learned = replace(vocabulary, coder=None)  # a trained model's tokenizer is known by its hash in the run
    digest = hashlib.sha256(repr(learned).encode())
    for part in PARTS:
        for one in parts[part]:
            digest.update(repr((part, *one[:4])).encode())
    return digest.hexdigest()[:24]


# ---- batches -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchBatch:
    """Questions: each with the sequences of its texts, and which of their places, or of them, are right."""

    x: Tensor  # (G, C, T): the query, a separator, a text
    valid: Tensor  # (G, C, T)
    right: Tensor  # (G, P, T) places, or (G, 1, C) texts
    shapes_vary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Questions that are answered."""
        return len(self.x)


register_dataclass(MatchBatch)


class MatchBatches(Rounds[MatchBatch]):
    """Every question once an epoch, `batch_size` of similar length in a batch."""

    def __init__(self, part: Sequence[Match], batch_size: int, seed: int = 0) -> None:
        self.part, self.batch_size = part, batch_size
        self.lengths = np.array([one.length for one in part])
        super().__init__(len(part), seed)

    @property
    def predicted(self) -> int:
        """Number of questions."""
        return len(self.part)

    def groups(self, shuffled: Numbers) -> list[Numbers]:
        """Return groups of questions of similar length."""
        order = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        return np.split(order, range(self.batch_size, len(order), self.batch_size))

    def gather(self, numbers: Numbers) -> MatchBatch:
        """Return a group as a batch."""
        return gather_matches([self.part[i] for i in numbers])


def gather_matches(rows: Sequence[Match]) -> MatchBatch:
    """Return questions as a batch, padded with zeros."""
    shape = len(rows), max(len(one.ids) for one in rows), max(one.length for one in rows)
    x = torch.zeros(shape, dtype=torch.long)
    valid = torch.zeros(shape, dtype=torch.bool)
    widest = max(one.right.shape[1] for one in rows)
    right = torch.zeros(len(rows), rows[0].right.shape[0], widest, dtype=torch.bool)
    for g, one in enumerate(rows):
        right[g, :, : one.right.shape[1]] = torch.from_numpy(one.right)
        for c, ids in enumerate(one.ids):
            x[g, c, : len(ids)] = torch.from_numpy(ids)
            valid[g, c, : len(ids)] = True
    return MatchBatch(x, valid, right)
