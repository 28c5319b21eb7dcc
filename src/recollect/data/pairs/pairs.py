"""Pairs of sequences: sources and targets as ids on disk, in three parts that share no source.

Built once and kept in a cache under the hash of the lines and of everything that decides their ids, so that the second
run starts at once. The tokenizers' ids are followed by two more, `begin` and `end` of a target.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from recollect.core.cache import build_folder, cache_folder, is_whole, read_record
from recollect.data.audio.frame_coder import FrameCoder
from recollect.data.error import DataError
from recollect.data.labels.subword_coder import SubwordCoder, load_subwords
from recollect.data.pairs.pair_files import PairSource, open_pairs
from recollect.data.pairs.pair_filter import PARTS, Division, Sieve
from recollect.data.pairs.pair_rows import Encoded, PairPart, open_part, part_in_memory, write_part
from recollect.data.synthetic.pair_generators import PAIR_TASKS, Lines
from recollect.data.text.line_tokenizer import LineTokenizer, is_mostly_han, main_scripts
from recollect.data.text.source import to_stderr
from recollect.data.text.tokenizer import smallest_dtype
from recollect.data.text.vocabulary import VocabularyLimits, fit_vocabulary, notices_of

VERSION = 3  # of the files in the cache, of the parts, and of how lines become ids
LEAST = 3  # pairs, one for each part
SourceCoder: TypeAlias = LineTokenizer | SubwordCoder  # of text: its own, or a trained model's
SMALL = 500_000  # characters below which there is too little to learn byte pairs from
SAMPLE = 1000  # pairs from which the script is found


@dataclass(frozen=True)
class Pairs:
    """Two tokenizers, learned from the training part alone, jointly or one for each side, and three parts.

    A model's vocabularies are the tokenizers' and two ids more.
    """

    source_tokenizer: SourceCoder | FrameCoder
    target_tokenizer: LineTokenizer
    train: PairPart
    valid: PairPart
    test: PairPart
    name: str  # of its folder in the cache, for `reopen_pairs`

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same ids."""
        assert isinstance(self.source_tokenizer, LineTokenizer)
        sides = self.source_tokenizer.base, self.target_tokenizer.base
        return sides[0].vocab_size == sides[1].vocab_size and sides[0].content() == sides[1].content()

    @property
    def begin(self) -> int:
        """The id that is read before a target."""
        return self.target_tokenizer.begin

    @property
    def end(self) -> int:
        """The id that ends a target."""
        return self.target_tokenizer.end


class PairSettings(NamedTuple):
    """What decides how lines become ids."""

    kind: str
    joint: bool
    vocabulary: VocabularyLimits
    lowercase: bool
    limit: int | None
    source: SubwordCoder | None  # a trained model's, which is used as it is


class _Surveyed(NamedTuple):
    """Pairs that have been read once."""

    source: PairSource
    digest: str
    pairs: int
    size: int  # characters


def load_pairs(
    data: str,
    *,
    tokenizer: str | None = None,
    field: str | None = None,
    joint: bool | None = None,
    vocab_size: int | None = None,
    vocab_for: str = "tiny",
    lowercase: bool = False,
    limit: int | None = None,
    valid: str | None = None,
    test: str | None = None,
    cache: str | Path | None = None,
    given_source: SubwordCoder | None = None,
) -> Pairs:
    """Return DATA as pairs, from the cache if it holds them complete.

    `valid` and `test` are pairs of their own, named as DATA is, and kept unchanged. For each that is not given one
    source in 20 is held out with all its targets, chosen by its hash, without pairs of an earlier part. Training leaves
    out pairs with an empty side and those in which one side has more than `limit` symbols. Both sides have one
    vocabulary where `joint`, by default where they are written in the same script. Where `vocab_size` is not given, it
    is fitted to the text and to a model of the size `vocab_for`. `given_source`: the tokenizer of a trained model, with
    which sources are read as it is; the targets have another.
    """
    given = {part: text for part, text in zip(PARTS, (data, valid, test), strict=True) if text is not None}
    read = {part: _survey(open_pairs(text, field=field, notify=to_stderr)) for part, text in given.items()}
    train = read["train"]
    if train.pairs < LEAST:
        raise DataError(
            f"{train.source.name}: got {train.pairs} pairs, expected {LEAST} or more to train, validate and test on"
        )
    kind = tokenizer or choose_kind(train.source, train.size)
    if joint is None:
        joint = given_source is None and share_script(train.source)
    vocabulary = fit_vocabulary(kind, train.size if joint else train.size // 2, vocab_for, vocab_size)
    settings = PairSettings(kind, joint, vocabulary, lowercase, limit, given_source)
    keys = [f"{part} {one.digest}" for part, one in read.items()]
    keys += [] if given_source is None else [json.dumps(given_source.content())]
    name = hashlib.sha256(f"pairs {VERSION} {tuple(settings[:-1])} {keys}".encode()).hexdigest()[:24]
    folder = cache_folder(cache) / name
    if not is_whole(folder):
        build_folder(folder, partial(_fill, read=read, settings=settings))
    for notice in read_record(folder)["notices"]:
        to_stderr(notice)
    pairs = _open(folder)
    for notice in notices_of(kind, pairs.target_tokenizer.vocab_size, vocabulary, vocab_size):
        to_stderr(notice if joint else f"targets' {notice}")
    return pairs


def reopen_pairs(name: str, cache: str | Path | None = None) -> Pairs | None:
    """Return pairs by their name in the cache, without their text; None if they are missing or incomplete."""
    folder = cache_folder(cache) / name
    return _open(folder) if is_whole(folder) else None


def read_part(data: str, source: SourceCoder, target: LineTokenizer, field: str | None = None) -> PairPart:
    """Read all of DATA as one part to test on, without the cache; no pair is left out."""
    pairs = open_pairs(data, field=field, notify=to_stderr)
    _survey(pairs)
    dtype = smallest_dtype(max(source.vocab_size, target.vocab_size))
    return part_in_memory((_encoded(lines, source, target) for lines in pairs.pairs()), dtype)


def choose_kind(source: PairSource, size: int) -> str:
    """Return the kind of a generated task; else characters for Han or little text, and byte pairs for the rest."""
    if source.task is not None:
        return PAIR_TASKS[source.task.partition(":")[0]].kind
    sample = "".join(line for lines in islice(source.pairs(), SAMPLE) for line in lines)
    return "char" if size < SMALL or is_mostly_han(sample) else "bpe"


def share_script(source: PairSource) -> bool:
    """Return whether both sides are written in the same script, judged by the first pairs."""
    letters: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for lines in islice(source.pairs(), SAMPLE):
        for count, line in zip(letters, lines, strict=True):
            count.update(line)
    scripts = [main_scripts(count, 0.5) for count in letters]
    return scripts[0] == scripts[1] or not all(scripts)


def _survey(source: PairSource) -> _Surveyed:
    """Hash and count the pairs; refuse lines that cannot be read, and a side that is always empty."""
    digest, count, sizes = hashlib.sha256(), 0, [0, 0]
    for lines in source.pairs():
        count += 1
        digest.update("".join(f"{len(line)} {line}" for line in lines).encode())
        sizes = [size + len(line.strip()) for size, line in zip(sizes, lines, strict=True)]
    for side, size in enumerate(sizes):
        if not size:
            where = source.files[side].path if source.is_parallel else source.name
            every = f"each of the {count} {('sources', 'targets')[side]} is empty" if count else "no pair in it"
            raise DataError(f"{where}: {every}; give a file with text in it")
    return _Surveyed(source, digest.hexdigest(), count, sum(sizes))


# ---- building ------------------------------------------------------------------------------------------


def _fill(folder: Path, read: dict[str, _Surveyed], settings: PairSettings) -> dict[str, Any]:
    """Learn the tokenizers, write part after part; return the record to be saved with them."""
    whole, notices = read["train"].source, list[str]()
    division = Division(whole.pairs(), [part for part in PARTS if part not in read], whole.name)
    source, target = _learn(partial(_pairs_of, "train", read, division), settings)
    source.save(folder / "source.json")
    target.save(folder / "target.json")
    dtype, sieve = smallest_dtype(max(source.vocab_size, target.vocab_size)), Sieve(settings.limit, settings.lowercase)
    for part in PARTS:
        encoded = (_encoded(pair, source, target) for pair in _pairs_of(part, read, division))
        pairs = sieve.training(encoded) if part == "train" else sieve.held_out(encoded, is_given=part in read)
        count = write_part(folder, part, pairs, dtype)
        notices += [f"{part}: {notice}" for notice in sieve.notices()]
        if not count:
            name = read.get(part, read["train"]).source.name
            advice = (
                "give more pairs or a larger limit"
                if part == "train"
                else f"give pairs of their own with --set {part}=FILE"
            )
            raise DataError(f"{name}: {part}: no pair is left ({'; '.join(notices)}); {advice}")
    return {"dtype": dtype.name, "notices": notices}


def _pairs_of(part: str, read: dict[str, _Surveyed], division: Division) -> Iterator[Lines]:
    """Return the pairs of a part in the order of the file: all of a given one, else those that fall to it."""
    if part in read and part != "train":
        return read[part].source.pairs()
    return (pair for pair in read["train"].source.pairs() if division.part_of(pair) == part)


def _learn(pairs: Callable[[], Iterator[Lines]], settings: PairSettings) -> tuple[SourceCoder, LineTokenizer]:
    """Learn one tokenizer from both sides, or one from each, of pairs whose sides both have text."""
    letters: tuple[Counter[str], Counter[str]] = Counter(), Counter()

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        for pair in pairs():
            if all(line.strip() for line in pair):
                for side in sides:
                    letters[side].update(pair[side])
                    yield pair[side]

    def learn(*sides: int) -> LineTokenizer:
        fitted = settings.vocabulary
        return LineTokenizer.train(settings.kind, lines(sides), fitted.size, settings.lowercase, fitted.rarest)

    if settings.source is not None:
        return settings.source, learn(1).for_scripts(main_scripts(letters[1]))
    source, target = [learn(0, 1)] * 2 if settings.joint else [learn(0), learn(1)]
    return source.for_scripts(main_scripts(letters[0])), target.for_scripts(main_scripts(letters[1]))


def _encoded(lines: Lines, source: SourceCoder, target: LineTokenizer) -> Encoded:
    return source.encode(lines[0]), lines[0], target.encode(lines[1]), lines[1]


# ---- reading -------------------------------------------------------------------------------------------


def load_source_coder(path: Path) -> SourceCoder:
    """Read the tokenizer of sources that are text."""
    return load_subwords(path) or LineTokenizer.load(path)


def _open(folder: Path) -> Pairs:
    record = read_record(folder)
    source = load_source_coder(folder / "source.json")
    target = LineTokenizer.load(folder / "target.json")
    parts = {part: open_part(folder, part, record["dtype"]) for part in PARTS}
    return Pairs(source, target, **parts, name=folder.name)
