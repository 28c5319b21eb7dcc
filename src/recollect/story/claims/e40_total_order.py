"""E40: An RNN imposes a total order: exchanging any two neighbours changes its state.

中文：RNN 施加的是全序：交换任意相邻两项都会改变状态。
Seed: 000_56d5b8bda4e4cf77.txt:123
Budget: seconds
Says: A partial order.
说法：偏序。
Expected: every exchange changes the state; a sum of the inputs changes with none
预期：每一次交换都改变状态；而输入之和不因任何交换改变
Rule: holds if no exchange leaves the state unchanged, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

STEPS = 12


@torch.no_grad()
def run(budget: Budget) -> Result:
    layer = RNN(4, 5, dtype=torch.float64)
    x = torch.randn(1, STEPS, 4, dtype=torch.float64)
    state = layer(x)[0][:, -1]
    unchanged = {"rnn": 0, "sum": 0}
    for t in range(STEPS - 1):
        order = list(range(STEPS))
        order[t], order[t + 1] = t + 1, t
        unchanged["rnn"] += largest_error(layer(x[:, order])[0][:, -1], state) < 1e-12
        unchanged["sum"] += largest_error(x[:, order].sum(1), x.sum(1)) < 1e-12
    wrong = Control(Bilingual("exchanges that leave a sum unchanged", "不改变求和的交换数"), float(unchanged["sum"]))
    return identity(
        {Bilingual("exchanges that change nothing", "不改变状态的交换"): float(unchanged["rnn"])}, 0.0, wrong
    )
