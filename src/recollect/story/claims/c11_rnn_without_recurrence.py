"""C11: A recurrent network is a multilayer perceptron with a hidden state added.

中文：循环神经网络就是加上隐藏状态的多层感知机。
Seed: 003_d30a3ba1164faeec.txt:28
Budget: seconds
Expected: with W_hh = 0 the outputs are those of a perceptron at each step; [x, h] [W_xh; W_hh] = x W_xh + h W_hh
预期：W_hh = 0 时，输出等于逐步的感知机；[x, h] [W_xh; W_hh] = x W_xh + h W_hh
Rule: holds if both errors are at most 1e-12, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    layer = RNN(5, 7, dtype=torch.float64)
    x = torch.randn(3, 9, 5, dtype=torch.float64)  # (B, T, D)
    full = layer(x)[0]
    joined = _joined_matrix(layer, x)
    with torch.no_grad():
        layer.weight_hh.zero_()
    perceptron = torch.tanh(x @ layer.weight_ih.T + _bias(layer))
    errors = {
        Bilingual("W_hh = 0 against a perceptron", "W_hh = 0 与感知机之差"): largest_error(layer(x)[0], perceptron),
        Bilingual("one joined matrix against two", "合并矩阵与两个矩阵之差"): largest_error(joined, full),
    }
    wrong = Control(Bilingual("with recurrence", "保留循环连接"), largest_error(full, perceptron))
    return identity(errors, 1e-12, wrong)


def _bias(layer: RNN) -> Tensor:
    assert layer.bias_ih is not None
    assert layer.bias_hh is not None
    return layer.bias_ih + layer.bias_hh


def _joined_matrix(layer: RNN, x: Tensor) -> Tensor:
    """Return the outputs of h ← tanh([x, h] [W_xh; W_hh] + b)."""
    weights = torch.cat([layer.weight_ih, layer.weight_hh], 1)  # (H, D + H)
    h = torch.zeros(len(x), layer.hidden, dtype=x.dtype)
    states = []
    for t in range(x.shape[1]):
        h = torch.tanh(torch.cat([x[:, t], h], 1) @ weights.T + _bias(layer))
        states.append(h)
    return torch.stack(states, 1)
