"""From counts to probabilities: the mass that a context keeps for the symbols seen after it, and the mass that it backs
off.

Every smoothing here interpolates with the shorter context (h' is h without its first symbol; the last is uniform):

    p(w | h) = share(h w) + back(h) · p(w | h')

    share(h w) = kept(h w) / Σ_x (kept + given)(h x)      back(h) = Σ_x given(h x) / Σ_x (kept + given)(h x)

so that they differ in two numbers per n-gram, the count that it keeps and the count that it gives to h':

    maximum-likelihood   kept = c        given = 0
    witten-bell          kept = c        given = 1      Witten & Bell 1991, method C
    kneser-ney           kept = a - D    given = D      Chen & Goodman 1998, modified; as in Heafield et al. 2013

c is the count of the n-gram. a is c on the highest level; below, it is the number of distinct symbols seen before the
n-gram, because a shorter context is used only where the longer one is unknown. D depends on a (see `discounts`). A
context that nothing followed has back 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recollect.layers.ngram.counts import Ints, Level

Floats = NDArray[np.float64]
SMOOTHINGS = ("kneser-ney", "witten-bell", "maximum-likelihood")
FALLBACK = (0.0, 0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Weights:
    """The two weights of every n-gram, level by level."""

    share: list[Floats] = field(default_factory=list)  # levels 1 … order + 1
    back: list[Floats] = field(default_factory=list)  # levels 0 … order, the contexts of those


def smooth(levels: Sequence[Level], smoothing: str) -> Weights:
    """Compute the weights of a table by one of `SMOOTHINGS`."""
    weights = Weights()
    contexts = 1
    for n, level in enumerate(levels):
        counts = level.counts
        if smoothing == "kneser-ney" and n + 1 < len(levels):
            counts = adjusted_counts(level, levels[n + 1])
        if n == 0:
            counts = np.where(level.symbol == level.base - 1, 0, counts)  # the begin symbol is never predicted
        kept, given = divide(counts, smoothing)
        share, back = interpolate(level.parent, contexts, kept, given)
        weights.share.append(share)
        weights.back.append(back)
        contexts = len(level)
    return weights


def divide(counts: Ints, smoothing: str) -> tuple[Floats, Floats]:
    """Return what each n-gram of a level keeps and gives to the shorter context; both are 0 for a count of 0."""
    if smoothing == "kneser-ney":
        discount = discounts(counts)[np.minimum(counts, 3)]
        return counts - discount, discount
    given = np.minimum(counts, 1) if smoothing == "witten-bell" else np.zeros_like(counts)
    return counts.astype(np.float64), given.astype(np.float64)


def interpolate(parent: Ints, contexts: int, kept: Floats, given: Floats) -> tuple[Floats, Floats]:
    """Compute `share` of each n-gram of a level (E,) and `back` of each of its contexts (contexts,)."""
    handed = np.bincount(parent, weights=given, minlength=contexts)
    total = np.bincount(parent, weights=kept, minlength=contexts) + handed
    followed = total > 0
    total[~followed] = 1.0
    return kept / total[parent], np.where(followed, handed / total, 1.0)


def adjusted_counts(level: Level, above: Level) -> Ints:
    """Compute Kneser-Ney's a(g) below the highest level: the number of distinct symbols seen before g.

    Only n-grams that start with the begin symbol have nothing before them; they keep their count, as in KenLM.
    """
    before = np.bincount(above.suffix, minlength=len(level))
    return np.where(before > 0, before, level.counts)


def discounts(counts: Ints) -> Floats:
    """Compute D for counts of 0, 1, 2, and 3 or more.

    D_k = k - (k + 1) · Y · t_{k+1} / t_k,    Y = t_1 / (t_1 + 2 t_2)

    t_k is the number of n-grams of count k. Where t_1, t_2 or t_3 is 0 or a D_k leaves [0, k], the text is too small
    for the estimate, and `FALLBACK` is used (lmplz --discount_fallback).

    Where we differ from KenLM: on every level below the highest, lmplz enters the last n-gram of its sort order into
    t_k with the raw count c instead of a (the final loop of `AdjustCounts::Run`), so that one n-gram may stand in
    another t_k. Figures on a corpus agree (docs/figures.md); on a text of a few sentences the discounts, and whether
    they fall back, can differ. lmplz also computes D in float32.
    """
    t = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    if not t[1:4].all():
        return np.array(FALLBACK)
    k = np.arange(4)
    d = np.zeros(4)
    d[1:] = k[1:] - (k[1:] + 1) * (t[1] / (t[1] + 2 * t[2])) * t[2:5] / t[1:4]
    return d if (d >= 0).all() and (d <= k).all() else np.array(FALLBACK)
