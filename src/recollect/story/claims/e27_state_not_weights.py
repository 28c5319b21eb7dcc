"""E27: What was read is kept in h_t; W_hh is the same before and after.

中文：读过的信息保存在 h_t 中；W_hh 在读前读后不变。
Seed: 003_d30a3ba1164faeec.txt:76
Budget: seconds
Says: The information is stored by W_hh.
说法：RNN 通过 W_hh 存储时序信息。
Expected: no weight changes while reading, the memory does
预期：读入时权重不变，记忆改变
Rule: holds if the weights' change is exactly 0 and the memory's is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    layer = RNN(4, 5, dtype=torch.float64)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    _, memory = layer(torch.randn(1, 50, 4, dtype=torch.float64))
    changed = max(largest_error(p, before[name]) for name, p in layer.named_parameters())
    wrong = Control(Bilingual("change of the memory", "记忆的变化"), float(memory.hidden.abs().max().detach()))
    return identity({Bilingual("change of the weights", "权重的变化"): changed}, 0.0, wrong)
