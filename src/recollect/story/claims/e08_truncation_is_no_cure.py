"""E8: Truncation makes all influence beyond τ steps exactly zero, and full back-propagation through a thousand steps is feasible.

中文：截断使超出 τ 步的影响恰好为零；而上千步的完整反向传播是可行的。
Seed: 002_c6efc9a4698e0e4d.txt:136, 002_c6efc9a4698e0e4d.txt:140, 002_c6efc9a4698e0e4d.txt:162
Budget: seconds
Says: Full computation is infeasible, and truncation prevents vanishing.
说法：完整计算不可行，而截断可以避免梯度消失。
Expected: gradient beyond the cut 0; the full gradient through 1,000 steps is finite and reaches the first step
预期：截断之前的梯度为 0；经过 1,000 步的完整梯度是有限的，且能到达第一步
Rule: holds if the first is exactly 0 and the second is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

STEPS, TAU = 1000, 10


def run(budget: Budget) -> Result:
    layer = RNN(3, 16, dtype=torch.float64)
    with torch.no_grad():
        torch.nn.init.orthogonal_(layer.weight_hh, 1.05)
    x = torch.randn(1, STEPS, 3, dtype=torch.float64, requires_grad=True)
    (full,) = torch.autograd.grad(layer(x)[0][:, -1].sum(), x)
    memory = layer(x[:, : STEPS - TAU])[1].detach()
    last, _ = layer(x[:, STEPS - TAU :], Hidden(hidden=memory.hidden))
    (cut,) = torch.autograd.grad(last[:, -1].sum(), x)
    errors = {
        Bilingual("influence beyond the cut", "截断之前的影响"): float(cut[:, : STEPS - TAU].abs().max()),
        Bilingual("full gradient that is not finite", "完整梯度中非有限的项"): float((~full.isfinite()).sum()),
    }
    kept = float(full[:, STEPS - TAU - 1].abs().max())
    return identity(errors, 0.0, Control(Bilingual("the same influence in full", "完整计算时的同一影响"), kept))
