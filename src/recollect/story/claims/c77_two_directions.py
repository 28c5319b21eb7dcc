"""C77: A bidirectional recurrent layer is only two one-way models side by side; a Transformer fuses both contexts.

中文：双向循环层只是两个单向模型的叠加，Transformer 才真正融合两侧上下文。
Seed: 000_56d5b8bda4e4cf77.txt:205
Budget: seconds
Expected: in one layer with a linear head the mixed derivative of left and right is exactly 0; with two layers, and in an encoder, it is not
预期：一层加线性输出层时，左右两侧的混合偏导恰为 0；两层时、以及在编码器中则不为 0
Rule: holds if … (one layer, linear head) where it is 0 there and not with two layers nor in the encoder; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch

from recollect.core.compose import Bidirectional, Stack
from recollect.core.record import readable
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

WIDTH, MIDDLE = 4, 3


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    one = Stack(_both(WIDTH), Linear(2 * WIDTH, WIDTH, dtype=torch.float64))
    two = Stack(_both(WIDTH), _both(2 * WIDTH))
    encoder = Block(SelfAttention(WIDTH, 1, causal=False, dtype=torch.float64), dtype=torch.float64)
    mixed = {"one layer": _mixed(one), "two layers": _mixed(two), "encoder block": _mixed(encoder)}
    wrong = Control(
        Bilingual("two layers, encoder block", "两层、编码器块"), min(mixed["two layers"], mixed["encoder block"])
    )
    result = identity({"one layer, linear head": mixed["one layer"]}, 1e-12, wrong)
    found = Bilingual(
        f"Mixed derivative of left and right: one layer {mixed['one layer']:.0e}, two layers {mixed['two layers']:.2g}, encoder block {mixed['encoder block']:.2g}.",
        f"左右两侧的混合偏导：一层 {mixed['one layer']:.0e}，两层 {mixed['two layers']:.2g}，编码器块 {mixed['encoder block']:.2g}。",
    )
    condition = Bilingual("there is one layer and its head is linear", "只有一层且输出层是线性的")
    return replace(
        result, found=found, condition=condition, verdict="holds if" if result.verdict == "holds" else "does not hold"
    )


def _both(width: int) -> AnyLayer:
    return Bidirectional(RNN(width, WIDTH, dtype=torch.float64), RNN(width, WIDTH, dtype=torch.float64))


def _mixed(layer: AnyLayer) -> float:
    """Return the largest ∂²y/∂left∂right at a step between the two."""
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    with readable():  # fused attention has no second derivative
        y = layer(x)[0][0, MIDDLE].sum()
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    along = torch.arange(1.0, WIDTH + 1, dtype=torch.float64)  # norms ignore a shift of all features alike
    (second,) = torch.autograd.grad(slope[0, MIDDLE - 1] @ along, x)
    return float(second[0, MIDDLE + 1].abs().max())
