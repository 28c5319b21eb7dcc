"""Counts of all n-grams of a text, as a prefix trie held in sorted arrays.

Level n holds the distinct n-grams, n = 1 … order + 1; below them level 0 is the root, with the one entry 0. An
n-gram's key is `parent · base + symbol`, where the parent is the id of its first n - 1 symbols on the level before and
`base` is the vocabulary and one more, because the begin symbol has the id `vocab_size`. Keys are sorted: an n-gram's
place among them is its id, and the children of a context lie side by side.

No loop runs over the text: for each length, one array has the id of the n-gram that ends at each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The distinct n-grams of one length (E of them), in the order of their keys."""

    base: int
    keys: Ints  # (E,) parent · base + symbol, ascending
    suffix: Ints  # (E,) the id, one level lower, of the n-gram without its first symbol
    counts: Ints  # (E,) how often it was seen

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def parent(self) -> Ints:
        """The id, one level lower, of each n-gram without its last symbol (E,)."""
        return self.keys // self.base

    @property
    def symbol(self) -> Ints:
        """The last symbol of each n-gram (E,)."""
        return self.keys % self.base


def empty_levels(vocab_size: int, order: int) -> list[Level]:
    """Return the table of a text without rows."""
    none = np.zeros(0, dtype=np.int64)
    return [Level(vocab_size + 1, none, none, none) for _ in range(order + 1)]


def count_ngrams(text: Ints, vocab_size: int, order: int) -> list[Level]:
    """Count the n-grams of up to `order + 1` symbols that lie within a row.

    `text` (L,) is the rows one after another, each behind a begin symbol, so it starts with one.
    """
    inside = text != vocab_size
    node = np.zeros_like(text)  # (L,) id of the n-gram that ends here, -1 if there is none; at first the root
    levels: list[Level] = []
    for n in range(1, order + 2):
        # Rolling moves the text's end before its start, where the begin symbol prevents it from being counted.
        parent = np.roll(node, 1)
        ends = np.flatnonzero((parent >= 0) & inside) if n > 1 else np.arange(len(text))
        level, which = _group(vocab_size + 1, parent[ends], text[ends], node[ends], np.ones_like(ends))
        node = np.full_like(text, -1)
        node[ends] = which
        levels.append(level)
    return levels


def merge_levels(first: Sequence[Level], second: Sequence[Level]) -> list[Level]:
    """Return the table of two texts together, in time proportional to both tables."""
    if not len(first[0]):
        return list(second)
    ids = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)  # old id -> merged id, one level lower
    merged: list[Level] = []
    for a, b in zip(first, second, strict=True):
        parent = np.concatenate([ids[0][a.parent], ids[1][b.parent]])
        suffix = np.concatenate([ids[0][a.suffix], ids[1][b.suffix]])
        symbol = np.concatenate([a.symbol, b.symbol])
        level, which = _group(a.base, parent, symbol, suffix, np.concatenate([a.counts, b.counts]))
        ids = which[: len(a)], which[len(a) :]
        merged.append(level)
    return merged


def _group(base: int, parent: Ints, symbol: Ints, suffix: Ints, counts: Ints) -> tuple[Level, Ints]:
    """Return the level that adds up equal keys, and the id of each item in it."""
    largest = np.iinfo(np.int64).max
    if len(parent) and int(parent.max()) >= largest // base:
        raise OverflowError(
            f"a key holds contexts · (vocab_size + 1) up to {largest}; got {int(parent.max()) + 1} contexts and "
            f"vocab_size {base - 1}. Lower the order or the vocabulary."
        )
    keys, which = np.unique(parent * base + symbol, return_inverse=True)
    suffixes = np.empty_like(keys)
    suffixes[which] = suffix  # the same for all items of a key
    # Sums of fewer than 2^53 occurrences are exact in float64, and bincount is much faster than np.add.at.
    sums = np.bincount(which, weights=counts, minlength=len(keys)).astype(np.int64)
    return Level(base, keys, suffixes, sums), which
