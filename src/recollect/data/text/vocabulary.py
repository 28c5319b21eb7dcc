"""The number of symbols of a vocabulary, fitted to the text and to the size of the model that reads it.

Byte pairs: a text in which each occurs a few hundred times, and no more than a model of the size has parameters for.
Words: the most frequent ones. A word that occurs once cannot be learned: it is an example of an unknown word.
"""

from __future__ import annotations

from typing import NamedTuple

from recollect.core.settings import SettingError

MOST_WORDS = {"tiny": 10_000, "small": 20_000, "base": 50_000}
MOST_PAIRS = {"tiny": 2_000, "small": 4_000, "base": 8_000}
SIZES = tuple(MOST_WORDS)
LEAST_PAIRS = 512  # 256 bytes, and as many pairs
PER_PAIR = 500  # characters of text
NOUNS = {"word": "words", "space": "words", "bpe": "byte pairs"}


class VocabularyLimits(NamedTuple):
    """The limits of a vocabulary."""

    size: int | None  # of words and byte pairs; None: none
    rarest: int  # a word occurs at least so often


def fit_vocabulary(kind: str, characters: int, size: str, given: int | None = None) -> VocabularyLimits:
    """Return the limits for a text of so many characters and a model of a size, or those of a given number.

    >>> fit_vocabulary("bpe", 1_000_000, "base").size, fit_vocabulary("word", 1_000_000, "small").size
    (2000, 20000)
    """
    if given is not None and kind not in NOUNS:
        got = f"vocab_size: got {given}, but the tokenizer {kind} has every {kind} of the text"
        raise SettingError(f"{got}; leave it out, or choose one of {', '.join(NOUNS)}, as --tokenizer bpe")
    if given is not None:
        return VocabularyLimits(given, 1)
    if kind == "bpe":
        return VocabularyLimits(min(max(characters // PER_PAIR, LEAST_PAIRS), MOST_PAIRS[size]), 1)
    return VocabularyLimits(MOST_WORDS[size], 2 if kind == "word" else 1)


def notices_of(kind: str, found: int, fitted: VocabularyLimits, given: int | None) -> list[str]:
    """Return what to say of a vocabulary that was chosen, once it has been learned."""
    is_chosen = kind in ("word", "bpe") or (kind == "space" and found == fitted.size)
    if given is not None or not is_chosen:
        return []
    return [f"vocabulary: {found:,} {NOUNS[kind]}, fitted to text and size; another: --set vocab_size=N"]
