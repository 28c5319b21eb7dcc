"""C28: The gradient through time is a recursion: ∂h_t/∂w = ∂f/∂w + ∂f/∂h · ∂h_{t-1}/∂w.

中文：沿时间的梯度是一个递推：∂h_t/∂w = ∂f/∂w + ∂f/∂h · ∂h_{t-1}/∂w。
Seed: 002_c6efc9a4698e0e4d.txt:132, 002_c6efc9a4698e0e4d.txt:134
Budget: seconds
Expected: after 12 steps in float64 the recursion and automatic differentiation agree to 1e-10
预期：float64 下 12 步之后，递推与自动微分相差不超过 1e-10
Rule: holds if the largest error is at most 1e-10, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

HIDDEN, STEPS = 5, 12


def run(budget: Budget) -> Result:
    layer = RNN(3, HIDDEN, dtype=torch.float64)
    states = layer(torch.randn(1, STEPS, 3, dtype=torch.float64))[0][0]  # (T, H)
    found = torch.stack([torch.autograd.grad(h, layer.weight_hh, retain_graph=True)[0] for h in states[-1]])
    slope = torch.zeros(HIDDEN, HIDDEN, HIDDEN, dtype=torch.float64)  # ∂h_a/∂W_bc
    before = torch.zeros(HIDDEN, dtype=torch.float64)
    direct = slope
    for h in states.detach():
        local = 1 - h**2
        direct = torch.einsum("a,ab,c->abc", local, torch.eye(HIDDEN, dtype=torch.float64), before)
        slope = direct + torch.einsum("ad,dbc->abc", local[:, None] * layer.weight_hh.detach(), slope)
        before = h
    wrong = Control(Bilingual("without the second term", "去掉第二项"), largest_error(direct, found))
    return identity({Bilingual("recursion - autograd", "递推 - 自动微分"): largest_error(slope, found)}, 1e-10, wrong)
