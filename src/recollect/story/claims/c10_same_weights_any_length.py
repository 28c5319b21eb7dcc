"""C10: An RNN has the same parameters at every step, reads any length, and its size does not depend on the length.

中文：RNN 在每个时间步使用同一组参数，可以读任意长度，参数量与长度无关。
Seed: 000_56d5b8bda4e4cf77.txt:14, 000_56d5b8bda4e4cf77.txt:18, 000_56d5b8bda4e4cf77.txt:115
Budget: seconds
Expected: one layer reads 1 to 10,000 steps; its gradient is the sum of those of a copy of the weights for each step
预期：同一层可读 1 到 10,000 步；它的梯度等于每步各用一份权重时各份梯度之和
Rule: holds if the error is at most 1e-10, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

LENGTHS = (1, 10, 100, 10_000)
STEPS = 12


def run(budget: Budget) -> Result:
    layer = RNN(3, 4, dtype=torch.float64)
    counts = []
    for length in LENGTHS:
        y, _ = layer(torch.randn(1, length, 3, dtype=torch.float64))
        counts.append(sum(p.numel() for p in layer.parameters()) if y.shape[1] == length else -1)
    x = torch.randn(2, STEPS, 3, dtype=torch.float64)
    (shared,) = torch.autograd.grad(layer(x)[0].square().sum(), layer.weight_hh)
    untied = _gradients_of_copies(layer, x)
    errors = {
        Bilingual("parameters that change with the length", "随长度变化的参数量"): float(max(counts) - min(counts)),
        Bilingual("gradient - sum over the steps", "梯度 - 各步之和"): largest_error(
            torch.stack(untied).sum(0), shared
        ),
    }
    wrong = Control(
        Bilingual("the last step's gradient alone", "只取最后一步的梯度"), largest_error(untied[-1], shared)
    )
    return identity(errors, 1e-10, wrong)


def _gradients_of_copies(layer: RNN, x: Tensor) -> list[Tensor]:
    """Return the gradient of each step's own copy of W_hh."""
    assert layer.bias_ih is not None
    assert layer.bias_hh is not None
    copies = [layer.weight_hh.detach().clone().requires_grad_() for _ in range(STEPS)]
    h = torch.zeros(len(x), layer.hidden, dtype=x.dtype)
    loss = torch.zeros((), dtype=x.dtype)
    for t, weight in enumerate(copies):
        h = torch.tanh(x[:, t] @ layer.weight_ih.T + layer.bias_ih + h @ weight.T + layer.bias_hh)
        loss = loss + h.square().sum()
    return list(torch.autograd.grad(loss, copies))
