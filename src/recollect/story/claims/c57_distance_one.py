"""C57: Self-attention joins any two positions in one step; a recurrent layer needs as many as lie between them.

中文：自注意力让任意两个位置一步相连；循环层需要走过中间的每一步。
Seed: 000_56d5b8bda4e4cf77.txt:199
Budget: seconds
Expected: over n positions one layer of attention needs 1 sequential operation, a recurrent layer n
预期：跨越 n 个位置，一层注意力需要 1 次串行运算，循环层需要 n 次
Rule: holds if the measured distances are exactly 1 and n for n = 2 … 64, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

LENGTHS = (2, 4, 8, 16, 32, 64)


def run(budget: Budget) -> Result:
    attention = [(float(n), float(_attention_distance(n))) for n in LENGTHS]
    recurrent = [(float(n), float(_recurrent_distance(n))) for n in LENGTHS]
    errors = {
        Bilingual("attention: distance - 1", "注意力：距离 - 1"): max(abs(d - 1) for _, d in attention),
        Bilingual("rnn: distance - n", "RNN：距离 - n"): max(abs(d - n) for n, d in recurrent),
    }
    chart = Chart(
        Bilingual(
            "Sequential operations from the first input to the last output", "从第一个输入到最后一个输出的串行步数"
        ),
        Bilingual("positions", "位置数"),
        Bilingual("operations", "步数"),
        [Curve("self-attention", attention), Curve("rnn", recurrent)],
        log_x=True,
        log_y=True,
    )
    wrong = Control(Bilingual("if the RNN needed one step too", "假如 RNN 也只需一步"), float(LENGTHS[-1] - 1))
    return identity(errors, 0.0, wrong, chart=chart)


def _attention_distance(n: int) -> int:
    """Return the fewest layers after which the last output depends on the first input."""
    torch.manual_seed(0)
    x = torch.randn(1, n, 4, dtype=torch.float64, requires_grad=True)
    y: Tensor = x
    for layers in range(1, 4):
        y = SelfAttention(4, 1, dtype=torch.float64)(y)[0]
        (slope,) = torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)
        if slope[0, 0].abs().max() > 0:
            return layers
    return 0


def _recurrent_distance(n: int) -> int:
    """Return the number of recurrent matmuls on the path from the first input to the last output.

    Every one is a factor W_hh: scaling W_hh by c scales the path of a linear RNN by c to the power of their number.
    """
    layer = RNN(1, 1, nonlinearity="relu", bias=False, dtype=torch.float64)
    slopes = []
    for scale in (1.0, 2.0):
        with torch.no_grad():
            layer.weight_ih.fill_(1.0)
            layer.weight_hh.fill_(scale)
        x = torch.ones(1, n, 1, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(layer(x)[0][0, -1].sum(), x)
        slopes.append(slope[0, 0])
    return round(float((slopes[1] / slopes[0]).log2())) + 1  # and the operation that reads the first input
