"""C51: Softmax amplifies high scores and suppresses low ones.

中文：softmax 放大高分、抑制低分。
Seed: 000_56d5b8bda4e4cf77.txt:182
Budget: seconds
Expected: the ratio of two weights is e to the difference of scores, more extreme the lower the temperature, and no weight is exactly 0
预期：两个权重之比等于 e 的得分差次方，温度越低越悬殊，且没有权重恰好为 0
Rule: holds if ratios are exact to 1e-9, order is kept and no weight is 0; hard alignment is the limit of temperature 0
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.attention.alignment import Soft
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

TEMPERATURES = (4.0, 2.0, 1.0, 0.5, 0.1, 0.01)


def run(budget: Budget) -> Result:
    scores = torch.randn(50, 1, 8, dtype=torch.float64)
    valid = torch.ones(50, 8, dtype=torch.bool)
    weights = Soft().align(scores, valid, scores, None)[0]
    ratios = weights[..., 1:] / weights[..., :1]
    shares = [(t, float((scores / t).softmax(-1).max(-1).values.mean())) for t in TEMPERATURES]
    errors = {
        Bilingual("ratio - e^difference", "权重之比 - e 的得分差次方"): largest_error(
            ratios.log(), scores[..., 1:] - scores[..., :1]
        ),
        Bilingual("order", "次序"): float((scores.argsort(-1) != weights.argsort(-1)).sum()),
        Bilingual("weights that are 0", "为 0 的权重"): float((weights == 0).sum()),
    }
    chart = Chart(
        Bilingual("Weight of the highest score by temperature", "最高分的权重随温度的变化"),
        Bilingual("temperature", "温度"),
        Bilingual("weight", "权重"),
        [Curve("largest weight", shares[::-1])],
        log_x=True,
    )
    wrong = Control(
        Bilingual("weights in proportion to the scores", "权重与得分成正比"),
        largest_error(weights, scores / scores.sum(-1, keepdim=True)),
    )
    return identity(errors, 1e-9, wrong, chart=chart)
