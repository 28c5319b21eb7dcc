"""E3: batch_first changes the layout of input and output only; the states keep (layers, batch, hidden).

中文：batch_first 只改变输入与输出的布局；状态始终是 (layers, batch, hidden)。
Seed: 002_c6efc9a4698e0e4d.txt:128
Budget: seconds
Says: Without batch first, the first two axes of the input and of the input must be exchanged.
说法：若不用 batch_first，需要交换输入和输入的前两个维度。
Expected: the same states with either layout
预期：两种布局下状态相同
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import nn

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    x = torch.randn(5, 5, 3, dtype=torch.float64)
    first, second = (nn.RNN(3, 4, num_layers=2, batch_first=order, dtype=torch.float64) for order in (True, False))
    second.load_state_dict(first.state_dict())
    (output, states), (output_second, states_second) = first(x), second(x.transpose(0, 1))
    errors = {
        Bilingual("states", "状态"): largest_error(states, states_second),
        Bilingual("outputs, transposed", "转置后的输出"): largest_error(output, output_second.transpose(0, 1)),
        Bilingual("states' layout", "状态的布局"): float(tuple(states.shape) != (2, 5, 4)),
    }
    wrong = Control(Bilingual("outputs not transposed", "输出未转置"), largest_error(output, output_second))
    return identity(errors, 1e-12, wrong)
