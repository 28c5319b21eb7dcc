"""E26: Within a step input and hidden layer are fully connected; no input connects to the hidden layer of an earlier step.

中文：同一步内输入层与隐藏层是全连接的；输入不与更早时间步的隐藏层相连。
Seed: 003_d30a3ba1164faeec.txt:61
Budget: seconds
Says: Input layer and hidden layer are not fully connected.
说法：输入层与隐藏层不是全连接。
Expected: every entry of ∂a_t/∂x_t is non-zero, and of ∂h_t/∂x_s for s > t all are zero
预期：∂a_t/∂x_t 的每一项都不为零；s > t 时 ∂h_t/∂x_s 全为零
Rule: holds if there is no missing connection and none back in time, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    layer = RNN(4, 5, dtype=torch.float64)
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda x: layer(x)[0], x)[0, :, :, 0]  # (T, H, T, D)
    here = torch.stack([slopes[t, :, t] for t in range(6)])
    back = torch.stack([slopes[t, :, t + 1 :].abs().sum() for t in range(6)])
    errors = {
        Bilingual("missing connections", "缺失的连接"): float((here == 0).sum()),
        Bilingual("connections back in time", "逆时间的连接"): float(back.max()),
    }
    wrong = Control(Bilingual("connections within a step", "同一步内的连接数"), float((here != 0).sum()))
    return identity(errors, 0.0, wrong)
