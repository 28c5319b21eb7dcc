"""Sentences as ids: what experiments on generated examples share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from recollect.core.padding import pad

Sentence = Sequence[str]


def numbers_of(sentences: Iterable[Sentence], first: int = 0) -> dict[str, int]:
    """Return a number for every word that occurs, in alphabetical order, from `first` on."""
    return {word: first + i for i, word in enumerate(sorted({word for words in sentences for word in words}))}


def as_ids(sentences: Sequence[Sentence], numbers: Mapping[str, int]) -> tuple[Tensor, Tensor]:
    """Return ids (B, T), zero behind each sentence's end, and which are real (B, T)."""
    return pad([[numbers[word] for word in words] for words in sentences])
