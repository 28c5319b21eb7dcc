"""C87: Perplexity is 1 at best, infinite at worst, and the size of the vocabulary for uniform predictions.

中文：困惑度最好为 1，最坏为无穷大；均匀预测时等于词表大小。
Seed: 002_c6efc9a4698e0e4d.txt:100
Budget: seconds
Expected: 1 for certainty, |V| for uniform, infinite for one impossible symbol; a confident wrong model exceeds |V|
预期：确定预测为 1，均匀预测为 |V|，遇到概率为零的符号为无穷大；自信而错误的模型会超过 |V|
Rule: holds if all four are met to 1e-9, else does not hold
Exact: holds
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

VOCABULARY, SYMBOLS = 28, 5_000


def run(budget: Budget) -> Result:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCABULARY, (SYMBOLS,), generator=draw)
    certain = torch.nn.functional.one_hot(ids, VOCABULARY).double()
    uniform = torch.full((SYMBOLS, VOCABULARY), 1 / VOCABULARY, dtype=torch.float64)
    impossible = uniform.clone()
    impossible[0, ids[0]] = 0.0
    exponential = torch.rand(SYMBOLS, VOCABULARY, generator=draw, dtype=torch.float64).log().neg()
    drawn = exponential / exponential.sum(
        1, keepdim=True
    )  # uniform among all distributions: knows nothing, is confident
    wrong = _perplexity(drawn, ids)
    errors = {
        "certain - 1": abs(_perplexity(certain, ids) - 1),
        "uniform - |V|": abs(_perplexity(uniform, ids) - VOCABULARY),
        "one impossible symbol, 1 / perplexity": 1 / _perplexity(impossible, ids),
        "drawn predictions, |V| - perplexity": max(0.0, VOCABULARY - wrong),
    }
    name = Bilingual("drawn predictions", "随机抽取的预测分布")
    found = Bilingual(
        f"Certain 1, uniform {VOCABULARY}, one impossible symbol infinite; predictions that are drawn at random "
        f"{wrong:.1f}: uniform is no upper bound.",
        f"确定预测为 1，均匀预测为 {VOCABULARY}，一个概率为零的符号即为无穷大；随机抽取的预测分布为 {wrong:.1f}："
        "均匀预测并不是上界。",
    )
    return identity(errors, 1e-9, Control(name, wrong), found)


def _perplexity(probabilities: Tensor, ids: Tensor) -> float:
    """Return exp of the mean negative log likelihood."""
    likelihoods = probabilities.gather(1, ids[:, None]).log()
    mean = -float(likelihoods.mean())
    return math.exp(mean) if mean < math.inf else math.inf
