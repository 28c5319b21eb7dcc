"""E6: A training perplexity near 1 shows that a text was memorised; only held-out text shows what was learned.

中文：接近 1 的训练困惑度只说明背下了文本；只有留出文本才能说明学到了什么。
Seed: 002_c6efc9a4698e0e4d.txt:100
Budget: seconds
Says: A perplexity of 1 is the best case.
说法：困惑度为 1 是最好的情况。
Expected: on 10,000 characters, counts of order 5: training perplexity below 2, held-out at least twice it and worse than a lower order
预期：10,000 个字符、5 阶计数：训练困惑度低于 2，留出困惑度至少为其两倍，且不如更低的阶数
Rule: holds if both are so, else does not hold
Exact: holds
"""

from __future__ import annotations

import math

import torch

from recollect.data.error import DataError
from recollect.data.synthetic.builtin import python_docs, recall
from recollect.layers.ngram.markov import Markov
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result
from recollect.views.bilingual import Bilingual

TRAINED, HELD_OUT, ORDERS = 10_000, 5_000, (0, 1, 2, 3, 4, 5, 6)


def run(budget: Budget) -> Result:
    text = _text()
    symbols = {symbol: place for place, symbol in enumerate(sorted(set(text)))}
    ids = torch.tensor([[symbols[symbol] for symbol in text]])
    parts = ids[:, :TRAINED], ids[:, TRAINED:]
    figures = {order: _perplexities(order, len(symbols), *parts) for order in ORDERS}
    trained, held_out = figures[5]
    best = min(found for _, found in figures.values())
    is_so = trained < 2 and held_out > 2 * trained and held_out > best
    found = Bilingual(
        f"Order 5 on {TRAINED:,} characters: {trained:.2f} in training, {held_out:.2f} held out; the best held-out order has {best:.2f}.",
        f"{TRAINED:,} 个字符、5 阶：训练 {trained:.2f}，留出 {held_out:.2f}；留出集上最好的阶数为 {best:.2f}。",
    )
    names = ("training", "held out")
    curves = [
        Curve(name, [(float(order), figures[order][place]) for order in ORDERS]) for place, name in enumerate(names)
    ]
    words = Bilingual("Perplexity by order", "困惑度随阶数的变化")
    chart = Chart(words, Bilingual("order", "阶数"), Bilingual("perplexity", "困惑度"), curves)
    return Result(
        "holds" if is_so else "does not hold",
        found,
        held_out / trained,
        (held_out / trained,) * 2,
        Control(Bilingual("uniform", "均匀分布"), float(len(symbols))),
        Check(
            Bilingual("counts that include the held-out text predict it much better", "把留出文本也计入时预测准得多"),
            _perplexities(5, len(symbols), ids, parts[1])[1] < held_out / 2,
        ),
        chart=chart,
    )


def _text() -> str:
    """Return characters of the Python reference, or where it is missing of generated lines."""
    try:
        documents = "".join(python_docs())
    except DataError:
        documents = "".join(recall(count=2000))
    return documents[20_000 : 20_000 + TRAINED + HELD_OUT]


def _perplexities(order: int, symbols: int, train: torch.Tensor, test: torch.Tensor) -> tuple[float, float]:
    model = Markov(symbols, order, smoothing="witten-bell")
    model.count(train)
    first, second = (math.exp(-float(model.score(ids).mean())) for ids in (train, test))
    return first, second
