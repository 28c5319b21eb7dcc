"""Naive answers: by chance, by place, and by words that a query and a text have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from recollect.data.labels.subword_coder import Coder
from recollect.data.matches.matches import Match

ENDS = (".", "!", "?", "。", "！", "？")  # of sentences
K1, B = 1.2, 0.75  # of BM25


def bm25(query: Sequence[str], texts: Sequence[Sequence[str]], holding: Counter[str], count: int) -> list[float]:
    """Return the score of each text for a query (Robertson & Zaragoza 2009, eq. 3.15).

    Σ_w log(1 + (N − n_w + ½) / (n_w + ½)) · f_w (k₁ + 1) / (f_w + k₁ (1 − b + b · length / mean length))

    N texts of which n_w hold the word w (`holding`), f_w times in this one; k₁ = 1.2, b = 0.75.
    """
    mean = sum(map(len, texts)) / max(len(texts), 1)
    scores = []
    for text in texts:
        counts = Counter(text)
        norm = K1 * (1 - B + B * len(text) / max(mean, 1))
        rarity = {word: math.log(1 + (count - holding[word] + 0.5) / (holding[word] + 0.5)) for word in set(query)}
        scores.append(sum(rarity[word] * counts[word] * (K1 + 1) / (counts[word] + norm) for word in set(query)))
    return scores


def naive_accuracies(train: Sequence[Match], test: Sequence[Match], coder: Coder, *, points: bool) -> dict[str, float]:
    """Return the accuracy of chance, of the most frequent place in training, and of BM25.

    Where answers are pointed at, BM25 selects a sentence, and the answer is its rarest symbol that the query lacks.
    """
    every = [_words(coder, text) for one in train for text in one.question.texts]
    holding = Counter(word for words in every for word in set(words))
    place = Counter(int(i) for one in train for i in np.flatnonzero(one.right[0, _first(one, points) :])).most_common(1)

    def by_words(one: Match) -> float:
        query = _words(coder, one.question.query)
        if not points:
            return _tied(bm25(query, [_words(coder, t) for t in one.question.texts], holding, len(every)), one)
        sentences = _sentences(_words(coder, one.question.texts[0]))
        best = int(np.argmax(bm25(query, sentences, holding, len(every))))
        others = [word for word in sentences[best] if word not in query and word not in ENDS]
        found = min(others, key=lambda word: holding[word], default="")
        return float(found == " ".join(_words(coder, one.question.answer or "")))

    def by_place(one: Match) -> float:
        right = one.right[0, _first(one, points) :]
        return float(len(right) > place[0][0] and right[place[0][0]])

    def by_chance(one: Match) -> float:
        if not points:
            return float(one.right.mean())
        return 1 / len(set(_words(coder, one.question.texts[0])))

    rows: dict[str, Callable[[Match], float]] = {
        "chance": by_chance,
        "most frequent place": by_place,
        "BM25 on words": by_words,
    }
    return {name: float(np.mean([each(one) for one in test])) for name, each in rows.items()}


def _first(one: Match, points: bool) -> int:
    return one.begins if points else 0


def _words(coder: Coder, text: str) -> list[str]:
    return coder.symbols(text)


def _sentences(words: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in words:
        found[-1].append(word)
        if word in ENDS:
            found.append([])
    return [sentence for sentence in found if sentence] or [[]]


def _tied(scores: Sequence[float], one: Match) -> float:
    """Return the share of right texts among those with the highest score: what a random choice of them has."""
    best = np.isclose(scores, max(scores))
    return float(one.right[0][best].mean())
