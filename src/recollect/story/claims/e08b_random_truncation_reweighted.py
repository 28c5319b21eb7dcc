"""E8b: Random lengths alone are biased; the gradient is unbiased only when the steps that continue are weighted by 1/π.

中文：仅让截断长度随机是有偏的；只有把未截断的步按 1/π 加权，梯度才是无偏的。
Seed: 002_c6efc9a4698e0e4d.txt:142
Budget: seconds
Says: Random truncation means chunks of random length.
说法：随机截断就是取随机长度的片段。
Expected: over all cuts, the expected reweighted gradient is the full one; without weights it is not
预期：对所有截断方式求期望，加权的梯度等于完整梯度；不加权则不等
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

STEPS, HIDDEN, GO = 7, 3, 0.7  # GO: probability of not cutting between two steps


def run(budget: Budget) -> Result:
    weight = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64) / 2
    x = torch.randn(STEPS, HIDDEN, dtype=torch.float64)
    full = _gradient(weight, x, [1.0] * (STEPS - 1))
    expected = {kind: torch.zeros_like(full) for kind in ("reweighted", "random lengths")}
    for kept in product((True, False), repeat=STEPS - 1):
        chance = GO ** sum(kept) * (1 - GO) ** (STEPS - 1 - sum(kept))
        expected["reweighted"] += chance * _gradient(weight, x, [one / GO for one in kept])
        expected["random lengths"] += chance * _gradient(weight, x, [float(one) for one in kept])
    wrong = Control(Bilingual("without weights", "不加权"), largest_error(expected["random lengths"], full))
    return identity(
        {Bilingual("expected reweighted - full", "加权梯度的期望 - 完整"): largest_error(expected["reweighted"], full)},
        1e-10,
        wrong,
    )


def _gradient(weight: Tensor, x: Tensor, factors: list[float]) -> Tensor:
    """Return ∂ Σ h_T / ∂W, the gradient between steps t and t + 1 multiplied by the t-th factor."""
    w = weight.clone().requires_grad_()
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    for t, one in enumerate(x):
        factor = factors[t - 1] if t else 1.0
        h = h.detach() + factor * (h - h.detach())
        h = torch.tanh(one + w @ h)
    return torch.autograd.grad(h.sum(), w)[0]
