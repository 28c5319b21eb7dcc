"""E44: Perplexity is the geometric mean of the inverse probabilities, not their harmonic mean.

中文：困惑度是概率倒数的几何平均，而不是调和平均。
Seed: 002_c6efc9a4698e0e4d.txt:100
Budget: seconds
Says: Perplexity is the harmonic mean of the number of choices (d2l-zh, the book that the text follows).
说法：困惑度是可选词数的调和平均（原文所依据的《动手学深度学习》）。
Expected: exp of the mean log equals the geometric mean to 1e-12; the harmonic mean is smaller
预期：对数均值取指数等于几何平均，误差 1e-12；调和平均更小
Rule: holds if the geometric mean differs by at most 1e-12, relative, and the harmonic mean by more; else does not hold
Exact: holds
"""

from __future__ import annotations

import math

import torch

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    draw = torch.Generator().manual_seed(0)
    choices = 1 / torch.rand(100, generator=draw, dtype=torch.float64).clamp(min=0.01)  # 1 / p of each symbol
    perplexity = math.exp(float(choices.log().mean()))
    geometric = float(choices.prod()) ** (1 / len(choices))
    harmonic = len(choices) / float((1 / choices).sum())
    wrong = Control(Bilingual("the harmonic mean", "调和平均"), abs(harmonic / perplexity - 1))
    found = Bilingual(
        f"Perplexity {perplexity:.4f}, geometric mean {geometric:.4f}, harmonic mean {harmonic:.4f}.",
        f"困惑度 {perplexity:.4f}，几何平均 {geometric:.4f}，调和平均 {harmonic:.4f}。",
    )
    return identity({"perplexity / geometric mean - 1": abs(geometric / perplexity - 1)}, 1e-12, wrong, found)
