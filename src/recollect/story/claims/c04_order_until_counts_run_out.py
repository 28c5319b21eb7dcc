"""C4: A Markov model of higher order predicts better, until the counts run out.

中文：马尔可夫模型的阶数越高预测越好，直到计数不足为止。
Seed: 002_c6efc9a4698e0e4d.txt:60, 002_c6efc9a4698e0e4d.txt:62
Budget: seconds
Expected: on held-out text perplexity falls to order 4 or so and rises again (Witten–Bell); with Kneser–Ney it does not rise
预期：留出文本的困惑度大约降到四阶后回升（Witten–Bell）；用 Kneser–Ney 平滑则不回升
Rule: with perplexity at the highest order over the lowest: holds if its interval is above 1 with both smoothings; holds if … where with one, and below 1.01 with the other; does not hold where below 1.01 with both; else not shown
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import Tensor

from recollect.layers.ngram.markov import Markov
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

ORDERS = (0, 1, 2, 3, 4, 6, 9)
PARTS = 5  # each is held out once
FLAT = 1.01  # perplexity that has not risen
Smoothing: TypeAlias = Literal["kneser-ney", "witten-bell"]
SMOOTHINGS: tuple[Smoothing, Smoothing] = ("witten-bell", "kneser-ney")


def run(budget: Budget) -> Result:
    ids, symbols = characters(20_000 if budget.is_small else 100_000)
    parts = ids.chunk(PARTS)
    held = range(min(budget.seeds, PARTS))
    means, risen = {}, {}
    for smoothing in SMOOTHINGS:
        found = [[_perplexity(parts, i, order, symbols, smoothing) for order in ORDERS] for i in held]
        means[smoothing] = [sum(one[n] for one in found) / len(found) for n in range(len(ORDERS))]
        best = _best(means[smoothing])
        risen[smoothing] = [one[-1] / one[best] for one in found]
    simple, refined = (interval(risen[smoothing]) for smoothing in SMOOTHINGS)
    verdict = verdict_of(simple, refined)
    best, test, other = _best(means[SMOOTHINGS[0]]), means[SMOOTHINGS[0]], means[SMOOTHINGS[1]]
    words = Bilingual(
        f"With Witten–Bell smoothing held-out perplexity is lowest at order {ORDERS[best]} ({test[best]:.2f}; order 0 "
        f"{test[0]:.1f}, order {ORDERS[-1]} {test[-1]:.2f}); with Kneser–Ney it is lowest at order "
        f"{ORDERS[_best(other)]} ({min(other):.2f}).",
        f"Witten–Bell 平滑下，留出文本在 {ORDERS[best]} 阶困惑度最低（{test[best]:.2f}；0 阶 {test[0]:.1f}，{ORDERS[-1]} 阶 "
        f"{test[-1]:.2f}）；Kneser–Ney 下在 {ORDERS[_best(other)]} 阶最低（{min(other):.2f}）。",
    )
    condition = Bilingual(
        "rare counts are trusted: good smoothing falls back on shorter ones",
        "信任稀少的计数；好的平滑会退回到较短的上下文",
    )
    curves = [
        Curve(name, [(float(order), value) for order, value in zip(ORDERS, values, strict=True)])
        for name, values in means.items()
    ]
    title = Bilingual("Perplexity against the order", "困惑度与阶数")
    chart = Chart(title, Bilingual("order", "阶数"), Bilingual("perplexity", "困惑度"), curves, log_y=True)
    leak = Check(
        Bilingual("a model that counted the held-out part too predicts it better", "把留出部分也计入的模型预测得更准"),
        _perplexity(parts, 0, ORDERS[best], symbols, SMOOTHINGS[0], is_leaking=True)
        < 0.95 * _perplexity(parts, 0, ORDERS[best], symbols, SMOOTHINGS[0]),
    )
    first = risen[SMOOTHINGS[0]]
    baseline = Control(Bilingual("perplexity of order 0", "0 阶困惑度"), test[0])
    is_held = condition if verdict == "holds if" else None
    return Result(verdict, words, sum(first) / len(first), simple, baseline, leak, is_held, chart)


def verdict_of(simple: tuple[float, float], refined: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of the rise after the best order, with a simple and a refined smoothing."""
    risen, flat = ([one[0] > 1 for one in (simple, refined)], [one[1] < FLAT for one in (simple, refined)])
    if all(risen):
        return "holds"
    if all(flat):
        return "does not hold"
    return "holds if" if any(risen) and any(flat) else "not shown"


def _best(values: list[float]) -> int:
    return min(range(len(values)), key=lambda n: values[n])


def _perplexity(
    parts: tuple[Tensor, ...], held: int, order: int, symbols: int, smoothing: Smoothing, *, is_leaking: bool = False
) -> float:
    """Return the perplexity of the held-out part; the others are counted, and it too where it is leaking."""
    model = Markov(symbols, order, smoothing=smoothing)
    for i, part in enumerate(parts):
        if i != held or is_leaking:
            model.count(part[None])
    return float((-model.score(parts[held][None]).mean()).exp())
