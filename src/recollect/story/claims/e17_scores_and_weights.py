"""E17: Scores come before the alignment, weights after it: a = softmax(e), which are two things with two names.

中文：score 在对齐之前，weight 在对齐之后：a = softmax(e)，是两样东西、两个名字。
Seed: 000_56d5b8bda4e4cf77.txt:164, 000_56d5b8bda4e4cf77.txt:181, 003_d30a3ba1164faeec.txt:213
Budget: seconds
Says: Attention weights, also called attention scores.
说法：注意力权重系数，也称为注意力得分。
Expected: weights = softmax(scores) to 1e-12, and differ from the scores
预期：权重 = softmax(得分)，误差 1e-12，且与得分不同
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import ScaledDot
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    attend = Attend(ScaledDot(8, 8)).double()
    with record(attend) as seen:
        attend(torch.randn(2, 3, 8, dtype=torch.float64), attend.remember(torch.randn(2, 5, 8, dtype=torch.float64)))
    scores, weights = seen["scores"], seen["weights"]
    wrong = Control(Bilingual("scores taken as weights", "把 score 当作 weight"), largest_error(scores, weights))
    return identity(
        {Bilingual("weights - softmax(scores)", "权重 - softmax(得分)"): largest_error(weights, scores.softmax(-1))},
        1e-12,
        wrong,
    )
