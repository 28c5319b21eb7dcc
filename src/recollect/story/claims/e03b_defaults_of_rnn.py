"""E3b: An RNN layer has biases by default, returns the top layer's states and the last states of every layer, and reads a single sequence too.

中文：RNN 层默认带偏置；output 只含顶层各步状态，h_n 含每一层的末态；也接受不带批次维的输入。
Seed: 002_c6efc9a4698e0e4d.txt:106, 002_c6efc9a4698e0e4d.txt:116, 002_c6efc9a4698e0e4d.txt:124
Budget: seconds
Says: The output holds all states; bias, device and dtype are left out.
说法：output 包含所有状态；表中缺少 bias、device、dtype。
Expected: output[:, -1] is the last of h_n only; without a batch the outputs are the same
预期：output[:, -1] 只等于 h_n 的最后一层；不带批次维时输出相同
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
    layer = nn.RNN(3, 4, num_layers=2, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    output, states = layer(x)
    errors = {
        Bilingual("no biases", "没有偏置"): float(not layer.bias),
        Bilingual("output - states of the top layer", "output - 顶层状态"): largest_error(output[:, -1], states[-1]),
        Bilingual("one sequence without a batch", "不带批次维的单个序列"): largest_error(layer(x[0])[0], output[0]),
    }
    wrong = Control(
        Bilingual("output against the lower layer", "output 与下层状态比较"), largest_error(output[:, -1], states[0])
    )
    return identity(errors, 1e-12, wrong)
