"""Recordings as data in three parts: with labels to classify, with transcripts to spell."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.data.audio.frame_coder import FrameCoder, flattened
from recollect.data.audio.wav_files import AudioRecording, check_rate, read_recordings
from recollect.data.labels.labelled import PARTS, Labelled, LabelNames, LabelPart, divided, given_parts, names_of
from recollect.data.pairs.pair_rows import PairPart, RaggedArray
from recollect.data.pairs.pairs import Pairs
from recollect.data.text.line_tokenizer import LineTokenizer


@dataclass(frozen=True)
class SpokenPairs(Pairs):
    """Pairs whose sources are frames of recordings."""

    @property
    def is_joint(self) -> bool:
        """False: frames and symbols share nothing."""
        return False


def load_spoken_labels(data: str, valid: str | None, test: str | None, bands: int, stack: int) -> Labelled:
    """Return recordings with labels as frames; parts that are not given are drawn from DATA, a tenth each."""
    parts = _parts(data, valid, test, lambda one: (one.label,))
    names = names_of((one.label for one in parts["train"]), data)
    coder = FrameCoder.learn(parts["train"], bands, stack)
    encoded = {part: label_part(rows, coder, names) for part, rows in parts.items()}
    return Labelled(coder, names, **encoded, name=_digest(parts, coder))


def load_spoken_pairs(
    data: str, valid: str | None, test: str | None, bands: int, stack: int, tokenizer: str | None
) -> SpokenPairs:
    """Return recordings as frames, and their transcripts as symbols, by default characters."""
    parts = _parts(data, valid, test, lambda one: ())
    coder = FrameCoder.learn(parts["train"], bands, stack)
    lines = LineTokenizer.train(tokenizer or "char", [one.label for one in parts["train"]])
    encoded = {part: pair_part(rows, coder, lines) for part, rows in parts.items()}
    return SpokenPairs(coder, lines, **encoded, name=_digest(parts, coder))


def label_part(rows: Iterable[AudioRecording], coder: FrameCoder, names: LabelNames) -> LabelPart:
    """Return recordings as frames with the numbers of their labels."""
    every = list(rows)
    targets = [np.array([names.number(one.label, one.where)]) for one in every]
    return LabelPart([coder.of(one) for one in every], targets, [one.where for one in every])


def pair_part(rows: Iterable[AudioRecording], coder: FrameCoder, lines: LineTokenizer) -> PairPart:
    """Return recordings as frames with their transcripts as ids."""
    every = list(rows)
    sources = RaggedArray(*flattened([coder.of(one) for one in every]))
    targets = RaggedArray(*_joined([lines.encode(one.label) for one in every]))
    names, texts = (
        [np.frombuffer(text.encode(), np.uint8) for text in side] for side in zip(*_texts(every), strict=True)
    )
    return PairPart(sources, targets, RaggedArray(*_joined(names)), RaggedArray(*_joined(texts)))


def _texts(rows: Sequence[AudioRecording]) -> list[tuple[str, str]]:
    return [(one.where, one.label) for one in rows]


def _parts(
    data: str, valid: str | None, test: str | None, labels_of: Callable[[AudioRecording], Iterable[str]]
) -> dict[str, list[AudioRecording]]:
    given = {part: list(read_recordings(name)) for part, name in given_parts(data, valid, test).items()}
    for part, rows in given.items():
        for one in rows[:1]:
            check_rate(one.rate, given["train"][0].rate, f"{part}: {one.where}", "as the training part has")
    return divided(given, data, lambda one: hashlib.sha256(one.samples.tobytes()).hexdigest(), labels_of)


def _joined(rows: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    return np.concatenate(rows), np.cumsum([len(row) for row in rows])


def _digest(parts: Mapping[str, Sequence[AudioRecording]], coder: FrameCoder) -> str:
    digest = hashlib.sha256(repr((coder.bands, coder.stack)).encode())
    for part in PARTS:
        for one in parts[part]:
            digest.update(repr((part, one.label, one.rate)).encode())
            digest.update(one.samples.tobytes())
    return digest.hexdigest()[:24]
