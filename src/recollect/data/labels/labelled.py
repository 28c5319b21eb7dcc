"""Labelled data: texts with one label, or words with a tag each, as ids in three parts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recollect.core.errors import nearest
from recollect.core.serialize import write_file
from recollect.data.audio.frame_coder import FrameCoder
from recollect.data.audio.wav_files import AudioRecording
from recollect.data.error import DataError
from recollect.data.labels.label_files import Column, LabelledText, read_texts
from recollect.data.labels.subword_coder import Coder
from recollect.data.labels.tag_files import TaggedWords, read_tagged
from recollect.data.labels.tag_schemes import ANY, UNTAGGED, converted_tags, fault_in, find_scheme, is_of_span
from recollect.data.labels.word_coder import WordCoder
from recollect.data.synthetic.match_generators import Question
from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.data.text.source import to_stderr
from recollect.data.text.tokenizer import Ids

PARTS = ("train", "valid", "test")
SHARE = 10  # one example in SHARE is held out for each part that is not given
LEAST = 10  # examples to train, validate and test on
SHOWN = 10  # labels that an error lists

E = TypeVar("E", LabelledText, TaggedWords, AudioRecording, Question)


@dataclass(frozen=True)
class LabelNames:
    """The labels by number, and the scheme of tags of spans, as a file of the run."""

    names: tuple[str, ...]
    scheme: str | None = None
    _numbers: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._numbers.update({name: i for i, name in enumerate(self.names)})

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, where: str) -> int:
        """Return a label's number, −1 for an untagged word; raise a DataError for one unseen in training."""
        if name == UNTAGGED:
            return -1
        if name not in self._numbers:
            known = ", ".join(self.names[:SHOWN]) + (", …" if len(self.names) > SHOWN else "")
            near = nearest(name, self.names)
            raise DataError(f"{where}: label {name!r} does not occur in the training part, which has {known}{near}")
        return self._numbers[name]

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_file(Path(path), json.dumps({"names": self.names, "scheme": self.scheme}, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> LabelNames:
        """Read it back."""
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(tuple(saved["names"]), saved["scheme"])


@dataclass(frozen=True)
class LabelPart:
    """Examples by number: ids or frames, the numbers of their labels, and their text or file."""

    ids: Sequence[NDArray[Any]]  # (T,), (T, 1 + L), or frames (T, D) each
    targets: Sequence[Ids]  # one for each text, or for each word; −1: none
    texts: Sequence[str]
    features: NDArray[np.float32] | None = None  # (N, D): what a body that is not trained makes of each text

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, limit: int | None) -> LabelPart:
        """Return the first examples, None: all."""
        features = None if self.features is None else self.features[:limit]
        return LabelPart(self.ids[:limit], self.targets[:limit], self.texts[:limit], features)

    @property
    def predicted(self) -> int:
        """Number of labels, or of tags."""
        return sum(int((one >= 0).sum()) for one in self.targets)


@dataclass(frozen=True)
class Labelled:
    """A tokenizer and labels, both of the training part, and three parts."""

    tokenizer: Coder | FrameCoder
    labels: LabelNames
    train: LabelPart
    valid: LabelPart
    test: LabelPart
    name: str  # a hash of the examples and of what decides their ids


@dataclass(frozen=True)
class Vocabulary:
    """How texts become ids; a given `coder`, as that of a trained model, is used as it is."""

    tokenizer: str | None = None
    vocab_size: int | None = None
    least: int = 1
    lowercase: bool = False
    spelled: bool = False
    coder: Coder | None = None

    def learn(self, texts: Sequence[str], kind: str) -> Coder:
        """Return the given coder, or learn one from the training part."""
        if self.coder is not None:
            return self.coder
        return WordCoder.learn(
            self.tokenizer or kind,
            lambda: texts,
            vocab_size=self.vocab_size,
            least=self.least,
            lowercase=self.lowercase,
            spelled=self.spelled,
        )


def load_texts(
    data: str,
    vocabulary: Vocabulary,
    *,
    text: Column = None,
    label: Column = None,
    valid: str | None = None,
    test: str | None = None,
) -> Labelled:
    """Return texts with labels; parts that are not given are drawn from DATA, a tenth each."""
    given = {part: list(read_texts(name, text, label)) for part, name in given_parts(data, valid, test).items()}
    parts = divided(given, data, lambda one: one.text, lambda one: (one.label,))
    names = names_of((one.label for one in parts["train"]), data)
    texts = [one.text for one in parts["train"]]
    # Names and other single words share letters, not words: most of those of the test part would be unknown.
    is_short = sum(len(text.split()) for text in texts) < 2 * len(texts)
    coder = vocabulary.learn(texts, "char" if is_short or is_mostly_han("".join(texts[:1000])) else "word")
    encoded = {part: encode_texts(rows, coder, names) for part, rows in parts.items()}
    return Labelled(coder, names, **encoded, name=_digest(parts, vocabulary, names))


def load_tags(
    data: str,
    vocabulary: Vocabulary,
    *,
    text: Column = None,
    label: Column = None,
    valid: str | None = None,
    test: str | None = None,
    scheme: str | None = None,
    convert: str | None = None,
) -> Labelled:
    """Return words with tags; their scheme, given or found, is checked, `convert` is the scheme to train in."""
    given = {part: list(read_tagged(name, text, label)) for part, name in given_parts(data, valid, test).items()}
    found = checked_scheme([one for rows in given.values() for one in rows], scheme, convert)
    if convert is not None:
        given = {part: converted(rows, convert) for part, rows in given.items()}
    parts = divided(given, data, lambda one: " ".join(one.words), lambda one: one.tags)
    names = names_of((tag for one in parts["train"] for tag in one.tags), data)
    names = LabelNames(names.names, None if found is None else convert or found)
    coder = vocabulary.learn([" ".join(one.words) for one in parts["train"]], "space")
    encoded = {part: encode_tagged(rows, coder, names) for part, rows in parts.items()}
    return Labelled(coder, names, **encoded, name=_digest(parts, vocabulary, names))


def checked_scheme(every: Sequence[TaggedWords], scheme: str | None, convert: str | None = None) -> str | None:
    """Return the scheme of tags, given or found; raise a DataError for one that it does not allow."""
    found = find_scheme(one.tags for one in every) if scheme in (None, ANY) else scheme
    if found is not None and scheme != ANY:
        for one in every:
            _check_scheme(one, found)
    if convert is not None:
        _check_spans(every, found)
    return found


def converted(rows: Sequence[TaggedWords], scheme: str) -> list[TaggedWords]:
    """Return words with their tags of spans in another scheme."""
    return [one._replace(tags=tuple(converted_tags(one.tags, scheme))) for one in rows]


def encode_texts(rows: Iterable[LabelledText], coder: Coder, names: LabelNames) -> LabelPart:
    """Return texts as ids; an empty one, or one with an unknown label, raises a DataError."""
    ids: list[Ids] = []
    targets: list[Ids] = []
    texts: list[str] = []
    for one in rows:
        targets.append(np.array([names.number(one.label, one.where)]))
        ids.append(coder.encode(one.text))
        texts.append(one.text)
        if not len(ids[-1]):
            raise DataError(f"{one.where}: no symbol is left of the text {one.text[:40]!r}; remove the row")
    return LabelPart(ids, targets, texts)


def encode_tagged(rows: Iterable[TaggedWords], coder: Coder, names: LabelNames) -> LabelPart:
    """Return words as ids; an unknown tag raises a DataError."""
    ids: list[Ids] = []
    targets: list[Ids] = []
    texts: list[str] = []
    for one in rows:
        targets.append(np.array([names.number(tag, f"{one.where}, word {i}") for i, tag in enumerate(one.tags, 1)]))
        try:
            ids.append(coder.encode_words(one.words))
        except DataError as error:
            raise DataError(f"{one.where}: {error}") from error
        texts.append(" ".join(one.words))
        if len(ids[-1]) != len(one.words):
            raise DataError(
                f"{one.where}: got {len(ids[-1])} symbols of {len(one.words)} words; tags need --tokenizer space"
            )
    return LabelPart(ids, targets, texts)


def given_parts(data: str, valid: str | None, test: str | None) -> dict[str, str]:
    """Return the names of the parts that are given."""
    return {part: name for part, name in zip(PARTS, (data, valid, test), strict=True) if name is not None}


def divided(
    given: dict[str, list[E]],
    data: str,
    text_of: Callable[[E], str],
    labels_of: Callable[[E], Iterable[str]] = lambda one: (),
) -> dict[str, list[E]]:
    """Return the three parts: given ones as they are, others drawn from the training part without its texts.

    Of every label an example stays in the training part, without which a rare one would be known to the others alone.
    """
    rows = given["train"]
    if len(rows) < LEAST and len(given) < len(PARTS):
        raise DataError(f"{data}: got {len(rows)} examples, expected {LEAST} or more to train, validate and test on")
    for part, own in given.items():
        if not own:
            raise DataError(f"{part}: no examples in it; give a file with at least one")
    drawn = np.random.default_rng(0).permutation(len(rows)).tolist()
    last = {label: i for i in drawn for label in labels_of(rows[i])}  # what would be drawn last of each label
    kept = set(last.values())
    size = max(len(rows) // SHARE, 1)
    held: dict[str, list[E]] = {}
    for part in [part for part in PARTS if part not in given]:
        numbers = [i for i in drawn if i not in kept][:size]
        if not numbers:
            got = f"{data}: got {len(kept)} labels in {len(rows)} examples, none of which can be held out"
            raise DataError(f"{got}; give more examples, or --set valid=FILE --set test=FILE")
        held[part] = [rows[i] for i in numbers]
        taken = set(numbers)
        drawn = [i for i in drawn if i not in taken]
    train = [rows[i] for i in sorted(drawn)]
    seen = {text_of(one) for one in train}
    for part, own in held.items():
        held[part] = [one for one in own if text_of(one) not in seen] or own
        if text_of(held[part][0]) in seen:
            to_stderr(f"{part}: every text drawn for it also occurs in the training part: its figures say little")
    for part, own in given.items():
        both = 0 if part == "train" else sum(text_of(one) in seen for one in own)
        if both:
            to_stderr(f"{part}: {both} of {len(own)} texts also occur in the training part")
    return {**{part: given[part] for part in given if part != "train"}, **held, "train": train}


def names_of(labels: Iterable[str], data: str) -> LabelNames:
    """Return the labels of the training part, sorted; raise a DataError for less than two."""
    counts = Counter(label for label in labels if label != UNTAGGED)
    if len(counts) < 2:
        got = f"every label is {next(iter(counts))!r}" if counts else "there is no label"
        raise DataError(f"{data}: {got}; expected at least two different ones in the training part")
    return LabelNames(tuple(sorted(counts)))


def _check_scheme(one: TaggedWords, scheme: str) -> None:
    place = fault_in(one.tags, scheme)
    if place is not None:
        before = one.tags[place - 1] if place else "the beginning"
        raise DataError(
            f"{one.where}, word {place + 1}: tag {one.tags[place]!r} after {before!r} is not legal in {scheme}; "
            "correct it, or read it as it is with --set scheme=any"
        )


def _check_spans(every: Sequence[TaggedWords], found: str | None) -> None:
    """Raise a DataError with the first tag that is not one of a span, where tags have no scheme to convert from."""
    if found is not None:
        return
    for one in every:
        for place, tag in enumerate(one.tags, 1):
            if not is_of_span(tag):
                got = f"{one.where}, word {place}: tag {tag!r} is not one of a span, as B-PER is"
                raise DataError(f"{got}; correct it, or leave --set convert out")


def _digest(parts: dict[str, list[E]], vocabulary: Vocabulary, names: LabelNames) -> str:
    settings = (vocabulary.tokenizer, vocabulary.vocab_size, vocabulary.least, vocabulary.lowercase, vocabulary.spelled)
    digest = hashlib.sha256(repr((settings, names.names, names.scheme)).encode())
    for part in PARTS:
        for one in parts[part]:
            digest.update(repr(one[:2]).encode())
    return digest.hexdigest()[:24]
