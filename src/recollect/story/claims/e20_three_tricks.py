"""E20: Three things lead from basic self-attention to the Transformer's: queries, keys and values; scaling; several heads.

中文：从基础自注意力到 Transformer 的自注意力有三步：query/key/value、缩放、多头。
Seed: 001_9b45f3fd679b11ad.txt:64
Budget: seconds
Says: Three extra tricks: queries, values, keys.
说法：三个技巧是 query、value、key。
Expected: with identity maps, no scaling and one head, the layer is the basic one; each of the three changes it
预期：映射为恒等、不缩放、只有一个头时，该层就是基础自注意力；三者中任何一个都会改变它
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.attention.self_attention import BasicSelfAttention, SelfAttention
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

WIDTH = 8


@torch.no_grad()
def run(budget: Budget) -> Result:
    x = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    basic = BasicSelfAttention(WIDTH)(x)[0]
    maps = torch.randn(3 * WIDTH, WIDTH, dtype=torch.float64)
    changes = [_layer(1, True)(x)[0], _layer(2, False)(x)[0], _layer(1, False, maps)(x)[0]]
    wrong = Control(
        Bilingual("with any one of the three", "加上三者中任意一个"), min(largest_error(one, basic) for one in changes)
    )
    return identity(
        {Bilingual("without the three", "三者皆无时"): largest_error(_layer(1, False)(x)[0], basic)}, 1e-12, wrong
    )


def _layer(heads: int, scaled: bool, maps: torch.Tensor | None = None) -> SelfAttention:
    layer = SelfAttention(WIDTH, heads, scaled=scaled, bias=False, dtype=torch.float64)
    one = torch.eye(WIDTH, dtype=torch.float64)
    layer.qkv.weight.copy_(torch.cat([one, one, one]) if maps is None else maps)
    layer.out.weight.copy_(one)
    return layer
