"""E9: An RNN's total time is linear in the length, its time for each symbol constant.

中文：RNN 的总时间随长度线性增长，每个符号的时间不变。
Seed: 000_56d5b8bda4e4cf77.txt:116, 000_56d5b8bda4e4cf77.txt:132
Budget: seconds
Says: The speed is linear in the length.
说法：整体推理速度与长度线性相关。
Expected: sequential steps n for n symbols, operations for each symbol constant
预期：n 个符号需要 n 个串行步，每个符号的运算量不变
Rule: holds if operations are exactly in proportion to the length, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from recollect.core.record import readable
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    rnn, attention = (_each(layer, 400) / _each(layer, 100) for layer in (RNN(16, 16), SelfAttention(16, 1)))
    wrong = Control(Bilingual("growth in attention", "注意力的增长"), attention - 1)
    return identity(
        {Bilingual("growth of operations for each symbol", "每个符号运算量的增长"): abs(rnn - 1)}, 1e-9, wrong
    )


def _each(layer: AnyLayer, steps: int) -> float:
    with FlopCounterMode(display=False) as counter, readable():
        layer(torch.randn(1, steps, 16))
    return counter.get_total_flops() / steps
