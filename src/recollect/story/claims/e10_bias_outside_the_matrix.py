"""E10: The GRU's candidate is tanh(x W_xh + (R ⊙ h) W_hh + b_h): the bias stands outside the matrix.

中文：GRU 的候选状态是 tanh(x W_xh + (R ⊙ h) W_hh + b_h)：偏置在矩阵之外。
Seed: 003_d30a3ba1164faeec.txt:155
Budget: seconds
Says: The bias is a part of the matrix's subscript.
说法：偏置写进了矩阵的下标。
Expected: the layer equals the formula to 1e-12
预期：该层与公式相差不超过 1e-12
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.recurrence import Hidden
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

H = 4


@torch.no_grad()
def run(budget: Budget) -> Result:
    layer = GRU(3, H, reset="before", dtype=torch.float64)
    x, h = torch.randn(5, 1, 3, dtype=torch.float64), torch.randn(5, H, dtype=torch.float64)
    y = layer(x, Hidden(hidden=h))[0][:, 0]
    from_x = F.linear(x[:, 0], layer.weight_ih, layer.bias_ih)
    w, b = layer.weight_hh, layer.bias_hh
    assert b is not None
    r, z = (from_x[:, : 2 * H] + F.linear(h, w[: 2 * H], b[: 2 * H])).sigmoid().chunk(2, 1)
    right = torch.tanh(from_x[:, 2 * H :] + (r * h) @ w[2 * H :].T + b[2 * H :])
    wrong = torch.tanh(from_x[:, 2 * H :] + (r * h) @ (w[2 * H :] + b[2 * H :, None]).T)
    found, other = (z * h + (1 - z) * candidate for candidate in (right, wrong))
    return identity(
        {Bilingual("layer - formula", "层 - 公式"): largest_error(y, found)},
        1e-12,
        Control(Bilingual("bias added to the matrix", "偏置加进矩阵"), largest_error(y, other)),
    )
