"""C60: The basic self-attention layer has no parameters.

中文：基础的自注意力层没有可训练参数。
Seed: 001_9b45f3fd679b11ad.txt:61
Budget: seconds
Expected: no parameter, and on random vectors a step attends mostly to itself, less so when scaled by 1/√d
预期：没有参数；对随机向量，每一步主要注意自己，除以 √d 后有所减轻
Rule: holds if it has none and equals softmax(x xᵀ) x to 1e-12, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.attention.self_attention import BasicSelfAttention
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    x = torch.randn(100, 10, 16, dtype=torch.float64)
    layer = BasicSelfAttention(16, causal=False)
    weights = (x @ x.mT).softmax(-1)
    scaled = (x @ x.mT / 4).softmax(-1)
    errors = {
        "parameters": float(sum(p.numel() for p in layer.parameters())),
        "layer - softmax(x xᵀ) x": largest_error(layer(x)[0], weights @ x),
    }
    own, own_scaled = _own(weights), _own(scaled)
    wrong = Control(
        Bilingual("the mean of all steps instead", "改为取所有步的平均"), largest_error(layer(x)[0], _mean(x))
    )
    found = Bilingual(
        f"No parameters, error {errors['layer - softmax(x xᵀ) x']:.0e}. A step's weight on itself is {own:.2f}, scaled "
        f"by 1/√d {own_scaled:.2f}: without queries and keys of their own steps attend mostly to themselves.",
        f"没有参数，误差 {errors['layer - softmax(x xᵀ) x']:.0e}。每一步给自己的权重为 {own:.2f}，除以 √d 后为 "
        f"{own_scaled:.2f}：没有独立的 query 与 key 时，每一步主要看自己。",
    )
    return identity(errors, 1e-12, wrong, found)


def _own(weights: Tensor) -> float:
    return float(weights.diagonal(dim1=1, dim2=2).mean())


def _mean(x: Tensor) -> Tensor:
    return x.mean(1, keepdim=True).expand_as(x)
