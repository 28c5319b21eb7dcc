"""C53: Attention is a fully connected network of m inputs and n outputs.

中文：注意力就是具有 m 个输入、n 个输出的全连接网络。
Seed: 003_d30a3ba1164faeec.txt:203
Budget: seconds
Expected: one layer reads two lengths with the same parameters, and its weights between positions change with the input
预期：同一层用同样的参数读两种长度，且位置间的权重随输入变化
Rule: holds if the weights do not depend on the input; does not hold if they do and both lengths are read
Exact: does not hold
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.attention.self_attention import SelfAttention
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    layer = SelfAttention(8, 1, causal=False, dtype=torch.float64)
    shapes, weights = [], []
    for length in (5, 5, 9):
        with record(layer) as seen:
            layer(torch.randn(1, length, 8, dtype=torch.float64))
        weights.append(seen["weights"][0, 0])
        shapes.append(tuple(seen["weights"].shape[2:]))
    change = float((weights[0] - weights[1]).abs().max())
    reads_both = shapes == [(5, 5), (5, 5), (9, 9)]
    found = Bilingual(
        f"The same layer has {shapes[0]} and {shapes[2]} weights between positions, which change by {change:.2f} from one input to another.",
        f"同一层在两种长度下有 {shapes[0]} 与 {shapes[2]} 个位置间权重，换一个输入变化达 {change:.2f}。",
    )
    check = Check(Bilingual("an identity: no data are held out", "恒等式：不涉及留出数据"), True)
    verdict: Verdict = "does not hold" if change > 1e-6 and reads_both else "holds"
    return Result(
        verdict, found, change, (change, change), Control(Bilingual("a fully connected layer", "全连接层"), 0.0), check
    )
