"""Interpolated modified Kneser-Ney with dictionaries and loops, written to be read beside the papers.

Chen & Goodman 1998, section 3; details as in KenLM's lmplz (Heafield et al. 2013) with --discount_fallback:

    p(w | h) = max(a(h w) - D(a(h w)), 0) / Σ_x a(h x)  +  γ(h) · p(w | h'),     γ(h) = Σ_x D(a(h x)) / Σ_x a(h x)

n-grams are tuples of symbols. The fast layer is `recollect.layers.ngram.markov`.
"""

from __future__ import annotations

from collections import Counter, defaultdict

BEGIN = "<s>"
Symbol = int | str
Gram = tuple[Symbol, ...]


class SlowKneserNey:
    """A model of `order` remembered symbols over the ids 0 … vocab_size - 1, counted from rows of ids."""

    def __init__(self, rows: list[list[int]], vocab_size: int, order: int) -> None:
        self.vocab_size, self.order = vocab_size, order
        counts = count_grams(rows, order + 1)
        self.children: defaultdict[Gram, dict[int, int]] = defaultdict(dict)  # h -> {w: a(h w)}
        self.discounts: dict[int, list[float]] = {}  # n -> D for counts 0, 1, 2, 3 or more
        for n in range(1, order + 2):
            adjusted = adjust(counts, n, highest=order + 1)
            self.discounts[n] = estimate_discounts(list(adjusted.values()))
            for gram, a in adjusted.items():
                self.children[gram[:-1]][gram[-1]] = a  # type: ignore[index]

    def probability(self, symbol: int, context: Gram) -> float:
        """p(symbol | context), of which the last `order` symbols matter."""
        context = context[len(context) - min(len(context), self.order) :]
        return self._interpolate(symbol, context)

    def _interpolate(self, symbol: int, context: Gram) -> float:
        shorter = self._interpolate(symbol, context[1:]) if context else 1 / self.vocab_size
        children = self.children.get(context)
        if not children:
            return shorter
        D = self.discounts[len(context) + 1]
        total = sum(children.values())
        own = children.get(symbol, 0)
        gamma = sum(D[min(a, 3)] for a in children.values()) / total
        return (own - D[min(own, 3)]) / total + gamma * shorter


def count_grams(rows: list[list[int]], longest: int) -> Counter[Gram]:
    """How often each n-gram within a row was seen; the begin symbol stands before each row, and only there."""
    counts: Counter[Gram] = Counter()
    for row in rows:
        symbols: Gram = (BEGIN, *row)
        for end in range(1, len(symbols) + 1):
            for n in range(1, min(longest, end) + 1):
                counts[symbols[end - n : end]] += 1
    return counts


def adjust(counts: Counter[Gram], n: int, highest: int) -> dict[Gram, int]:
    """a(g): below the highest order, the number of distinct symbols seen before g, unless g begins a row."""
    before: defaultdict[Gram, set[Symbol]] = defaultdict(set)
    for gram in counts:
        if len(gram) == n + 1:
            before[gram[1:]].add(gram[0])
    adjusted = {}
    for gram, count in counts.items():
        if len(gram) != n or gram == (BEGIN,):  # the begin symbol is context only
            continue
        keeps_count = n == highest or gram[0] == BEGIN
        adjusted[gram] = count if keeps_count else len(before[gram])
    return adjusted


def estimate_discounts(counts: list[int]) -> list[float]:
    """Chen & Goodman's D_1, D_2, D_3+ from the counts of counts, or fixed ones if the text is too small."""
    t = Counter(counts)
    fallback = [0, 0.5, 1.0, 1.5]
    if not (t[1] and t[2] and t[3]):
        return fallback
    Y = t[1] / (t[1] + 2 * t[2])
    D = [0.0] + [k - (k + 1) * Y * t[k + 1] / t[k] for k in (1, 2, 3)]
    return D if all(0 <= D[k] <= k for k in (1, 2, 3)) else fallback
