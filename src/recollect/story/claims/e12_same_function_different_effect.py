"""E12: Sharing weights applies the same function to every word; its effect depends on the word and on the state.

中文：权重共享是对每个词用同一个函数；它的作用取决于词和当时的状态。
Seed: 000_56d5b8bda4e4cf77.txt:125, 003_d30a3ba1164faeec.txt:144
Budget: seconds
Says: Sharing weights gives every word the same weight.
说法：权重共享就是给每个词同样的权重。
Expected: with shared weights the norms of ∂h_T/∂x_t differ between words: coefficient of variation above 0.5
预期：权重共享时，‖∂h_T/∂x_t‖ 因词而异：变异系数高于 0.5
Rule: holds if it is above 0.5, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    layer = GRU(8, 16, dtype=torch.float64)
    x = torch.randn(1, 12, 8, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x)[0][0, -1].square().sum(), x)
    norms = slope[0].norm(dim=1)  # (T,)
    variation = float(norms.std() / norms.mean())
    found = Bilingual(
        f"Among {len(norms)} words read by one set of weights the influence on the last state varies by {variation:.2f} of its mean.",
        f"同一组权重读入的 {len(norms)} 个词，对末态的影响差异为均值的 {variation:.2f} 倍。",
    )
    return Result(
        "holds" if variation > 0.5 else "does not hold",
        found,
        variation,
        (variation, variation),
        Control(Bilingual("equal influence", "影响相等"), 0.0),
        Check(Bilingual("a gradient: no data are held out", "梯度计算：不涉及留出数据"), True),
    )
