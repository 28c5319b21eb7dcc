"""E7: Standard back-propagation through time is full; cutting it after a fixed number of steps is a variant.

中文：标准的沿时间反向传播是完整的；固定步数截断是它的一个变体。
Seed: 002_c6efc9a4698e0e4d.txt:138
Budget: seconds
Says: Standard back-propagation through time truncates after a fixed number of steps.
说法：标准的 BPTT 采用固定步数的截断梯度。
Expected: cut after T steps the gradient is the full one, cut after fewer another
预期：T 步之后才截断，梯度就是完整的；更早截断则不同
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

STEPS = 12


def run(budget: Budget) -> Result:
    layer = RNN(3, 5, dtype=torch.float64)
    x = torch.randn(2, STEPS, 3, dtype=torch.float64)
    full = _gradient(layer, x, STEPS)
    (whole,) = torch.autograd.grad(layer(x)[0].square().sum(), layer.weight_hh)
    wrong = Control(Bilingual("cut after 3 steps", "3 步后截断"), largest_error(_gradient(layer, x, 3), whole))
    return identity(
        {Bilingual("cut after T steps - full", "T 步后截断 - 完整"): largest_error(full, whole)}, 1e-10, wrong
    )


def _gradient(layer: RNN, x: Tensor, every: int) -> Tensor:
    """Return ∂ Σ y² / ∂W_hh with the memory detached after every so many steps."""
    memory = Hidden(hidden=torch.zeros(len(x), layer.hidden, dtype=x.dtype))
    total = torch.zeros_like(layer.weight_hh)
    for part in x.split(every, 1):
        y, memory = layer(part, memory.detach())
        total += torch.autograd.grad(y.square().sum(), layer.weight_hh)[0]
    return total
