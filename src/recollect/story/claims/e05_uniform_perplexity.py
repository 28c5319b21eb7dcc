"""E5: Equal probabilities have a perplexity of the vocabulary's size; random guesses are worse, and nothing bounds a model from above.

中文：均匀概率的困惑度等于词表大小；随机猜测更差，困惑度没有上界。
Seed: 002_c6efc9a4698e0e4d.txt:100
Budget: seconds
Says: A random prediction is the baseline, with a perplexity of the vocabulary's size.
说法：随机预测就是基线，困惑度等于词表大小。
Expected: uniform 28 of 28 symbols, the frequencies of the symbols below it, random probabilities about 48, a zero probability infinite
预期：28 个符号：均匀分布为 28，符号频率更低，随机概率约 48，有一个概率为零则为无穷大
Rule: holds if uniform is exact, frequencies are below, random is above and a zero is infinite, else does not hold
Exact: holds
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH = 28, 20_000


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    frequencies = torch.distributions.Dirichlet(torch.ones(SYMBOLS, dtype=torch.float64)).sample()
    text = torch.multinomial(frequencies, LENGTH, replacement=True)
    uniform = _perplexity(torch.full((LENGTH, SYMBOLS), 1 / SYMBOLS, dtype=torch.float64), text)
    known = _perplexity(frequencies.expand(LENGTH, -1), text)
    drawn = torch.distributions.Dirichlet(torch.ones(SYMBOLS, dtype=torch.float64)).sample((LENGTH,))
    random = _perplexity(drawn, text)
    impossible = _perplexity(torch.eye(SYMBOLS, dtype=torch.float64)[(text + 1) % SYMBOLS], text)
    errors = {
        "uniform - 28": abs(uniform - SYMBOLS),
        "frequencies above uniform": float(known >= uniform),
        "zero probability finite": float(math.isfinite(impossible)),
    }
    found = Bilingual(
        f"Of {SYMBOLS} symbols: uniform {uniform:.2f}, frequencies {known:.2f}, random probabilities {random:.1f}, a zero {impossible}.",
        f"{SYMBOLS} 个符号：均匀 {uniform:.2f}，频率 {known:.2f}，随机概率 {random:.1f}，含零概率则为 {impossible}。",
    )
    wrong = Control(Bilingual("random probabilities above uniform", "随机概率高出均匀分布"), random - uniform)
    return identity(errors, 1e-9, wrong, found)


def _perplexity(probabilities: Tensor, text: Tensor) -> float:
    return math.exp(-float(probabilities.gather(1, text[:, None]).log().mean()))
