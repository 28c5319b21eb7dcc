"""C56: Attention uses dynamic weights, computed from the input.

中文：注意力使用动态权重，由输入计算得到。
Seed: 000_56d5b8bda4e4cf77.txt:201
Budget: seconds
Expected: attention's weights between positions change with the input; so do a GRU's gates; W_q, W_k, W_v do not
预期：注意力在位置间的权重随输入变化，GRU 的门也一样；W_q、W_k、W_v 则不变
Rule: holds if attention's weights change while a convolution's do not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.convolution import Convolution
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    first, second = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    attention = _change(SelfAttention(8, 1, dtype=torch.float64), "weights", first, second)
    gates = _change(GRU(8, 8, dtype=torch.float64), "update_gate", first, second)
    convolution = Convolution(8, 3, dtype=torch.float64)
    slopes = [torch.autograd.functional.jacobian(lambda x: convolution(x)[0], x) for x in (first, second)]
    found = Bilingual(
        f"From one input to another attention's weights change by {attention:.2f}, a GRU's update gate by {gates:.2f}, a convolution's by 0.",
        f"换一个输入，注意力权重变化 {attention:.2f}，GRU 更新门变化 {gates:.2f}，卷积为 0。",
    )
    wrong = Control(Bilingual("attention, GRU gates", "注意力、GRU 的门"), min(attention, gates))
    return identity({"a convolution's weights": largest_error(*slopes)}, 1e-12, wrong, found)


def _change(layer: torch.nn.Module, name: str, first: torch.Tensor, second: torch.Tensor) -> float:
    values = []
    for x in (first, second):
        with record(layer) as seen:
            layer(x)
        values.append(seen[name])
    return largest_error(*values)
