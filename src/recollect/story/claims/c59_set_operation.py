"""C59: Self-attention is an operation on sets: permuting the inputs permutes the outputs.

中文：自注意力是集合上的运算：打乱输入，输出以同样方式被打乱。
Seed: 001_9b45f3fd679b11ad.txt:61
Budget: seconds
Expected: without a mask the error is rounding; a causal mask or positions break it
预期：不加掩码时只有舍入误差；因果掩码或位置编码会打破等变性
Rule: holds if it is at most 1e-10 with every mask; holds if … where only the unmasked layer without positions is; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch

from recollect.core.compose import Stack
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.positions import Positions
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    order = torch.randperm(9)
    full, causal = (SelfAttention(12, 3, causal=view, dtype=torch.float64) for view in (False, True))
    causal.load_state_dict(full.state_dict())
    placed = Stack(Positions(12), full)
    unmasked = largest_error(full(x[:, order])[0], full(x)[0][:, order])
    pooled = largest_error(full(x[:, order])[0].mean(1), full(x)[0].mean(1))
    masked = largest_error(causal(x[:, order])[0], causal(x)[0][:, order])
    ordered = largest_error(placed(x[:, order])[0], placed(x)[0][:, order])
    wrong = Control(Bilingual("with the causal mask", "加因果掩码"), min(masked, ordered))
    result = identity({"unmasked": unmasked, "mean of the outputs": pooled}, 1e-10, wrong)
    found = Bilingual(
        f"Unmasked the error is {unmasked:.0e}; a causal mask makes it {masked:.2f}, positions {ordered:.2f}.",
        f"无掩码时误差 {unmasked:.0e}；加因果掩码为 {masked:.2f}，加位置编码为 {ordered:.2f}。",
    )
    condition = Bilingual("there is neither a mask nor a position", "既无掩码也无位置编码")
    is_so = result.verdict == "holds"
    return replace(result, found=found, verdict="holds if" if is_so else "does not hold", condition=condition)
