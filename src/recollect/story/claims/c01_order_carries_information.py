"""C1: Shuffling a sequence changes the information that it carries.

中文：打乱序列的顺序会显著改变数据原有的信息。
Seed: 002_c6efc9a4698e0e4d.txt:23
Budget: seconds
Expected: a model of order 3 is surprised by shuffled characters more than tenfold; not where characters are independent
预期：三阶模型对打乱后的字符困惑度高出十倍以上；字符相互独立时则不会
Rule: holds if the interval of the ratio of perplexities is above 1.5, does not hold if it is below, else not shown
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.ngram.markov import Markov
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

ORDER = 3


def run(budget: Budget) -> Result:
    ids, symbols = characters(20_000 if budget.is_small else 200_000)
    cut = len(ids) * 9 // 10
    ratios, independent = [], []
    for seed in range(budget.seeds):
        draw = torch.Generator().manual_seed(seed)
        ratios.append(_ratio(ids[:cut], ids[cut:], symbols, draw))
        loose = ids[torch.randperm(len(ids), generator=draw)]
        independent.append(_ratio(loose[:cut], loose[cut:], symbols, draw))
    low, high = interval(ratios)
    mean, control = (sum(values) / len(values) for values in (ratios, independent))
    verdict: Verdict = "holds" if low > 1.5 else "does not hold" if high < 1.5 else "not shown"
    found = Bilingual(
        f"Shuffled text has {mean:.0f} times the perplexity; independent characters {control:.2f} times.",
        f"打乱后的文本困惑度为原来的 {mean:.0f} 倍；相互独立的字符为 {control:.2f} 倍。",
    )
    held_out, leaking = (_perplexity(known, ids[cut:], symbols) for known in (ids[:cut], ids))
    leak = Check(
        Bilingual("a model that counted the held-out text too predicts it better", "把留出文本也计入的模型预测得更准"),
        leaking < 0.95 * held_out,
    )
    name = Bilingual("the same with independent characters", "字符相互独立时")
    return Result(verdict, found, mean, (low, high), Control(name, control), leak)


def _ratio(train: Tensor, test: Tensor, symbols: int, draw: torch.Generator) -> float:
    """Return the perplexity of shuffled held-out symbols over that of the same in order."""
    shuffled = test[torch.randperm(len(test), generator=draw)]
    in_order, at_random = (_perplexity(train, text, symbols) for text in (test, shuffled))
    return at_random / in_order


def _perplexity(known: Tensor, text: Tensor, symbols: int) -> float:
    """Return the perplexity of a text for a model that counted another."""
    model = Markov(symbols, ORDER)
    model.count(known[None])
    return float((-model.score(text[None]).mean()).exp())
