"""E16: In cross-attention the keys are those of the source.

中文：交叉注意力的键来自源序列。
Seed: 000_56d5b8bda4e4cf77.txt:171
Budget: seconds
Says: The keys of all target symbols make the matrix K.
说法：目标序列所有 token 的 key 构成矩阵 K。
Expected: keys do not change with the target, and do with the source
预期：键不随目标序列变化，只随源序列变化
Rule: holds if the first difference is 0 and the second is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.attention.cross_attention import CrossAttention
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    layer = CrossAttention(8, 2, dtype=torch.float64)
    first, second = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    source = layer.remember(first)
    keys = source.keys.clone()
    _, after = layer(torch.randn(1, 3, 8, dtype=torch.float64), source)
    wrong = Control(
        Bilingual("change with the source", "随源序列的变化"), largest_error(layer.remember(second).keys, keys)
    )
    return identity(
        {Bilingual("change with the target", "随目标序列的变化"): largest_error(after.keys, keys)}, 0.0, wrong
    )
