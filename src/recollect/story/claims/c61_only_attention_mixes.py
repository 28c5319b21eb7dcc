"""C61: In a Transformer only self-attention moves information between positions.

中文：在 Transformer 中，只有自注意力在位置之间传递信息。
Seed: 001_9b45f3fd679b11ad.txt:51
Budget: seconds
Expected: feed-forward network, norm, residual connection, embedding and positions have no slope from one position to another; batch norm would
预期：前馈网络、归一化、残差连接、投影与位置编码在不同位置之间的偏导均为 0；BatchNorm 则不为 0
Rule: holds if all of those slopes are exactly 0 and attention's is not, else does not hold
Exact: holds
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recollect.core.compose import Residual
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import FeedForward, LayerNorm, Linear, RMSNorm
from recollect.layers.positions import Positions
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

WIDTH = 8


def run(budget: Budget) -> Result:
    feed = FeedForward(WIDTH, 16, dtype=torch.float64)
    parts: dict[str, AnyLayer] = {
        "feed-forward": feed,
        "residual connection": Residual(feed),
        "layer norm": LayerNorm(WIDTH, dtype=torch.float64),
        "RMS norm": RMSNorm(WIDTH, dtype=torch.float64),
        "projection": Linear(WIDTH, WIDTH, dtype=torch.float64),
        "positions": Positions(WIDTH),
    }
    errors = {name: _slope_between(_outputs(part)) for name, part in parts.items()}
    attention = _slope_between(_outputs(SelfAttention(WIDTH, 2, causal=False, dtype=torch.float64)))
    batch = nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    batched = _slope_between(lambda x: batch(x.mT).mT)
    found = Bilingual(
        f"Largest slope between positions: 0 in {len(errors)} parts, {attention:.2f} in attention; batch norm would add "
        f"{batched:.2f}.",
        f"位置之间的最大偏导：{len(errors)} 种部件均为 0，注意力为 {attention:.2f}；若用 BatchNorm 则为 {batched:.2f}。",
    )
    smallest = min(attention, batched)
    return identity(errors, 0.0, Control(Bilingual("attention, batch norm", "注意力、BatchNorm"), smallest), found)


def _outputs(layer: AnyLayer) -> Callable[[Tensor], Tensor]:
    return lambda x: layer(x)[0]


def _slope_between(read: Callable[[Tensor], Tensor]) -> float:
    """Return the largest |∂y_i/∂x_j| of two different positions."""
    torch.manual_seed(0)
    x = torch.randn(1, 5, WIDTH, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(read, x)[0, :, :, 0]  # (T, D, T, D)
    between = slopes.abs().amax((1, 3))  # (T, T)
    return float((between - between.diag().diag()).max())
