"""C55: The more similar query and key, the more of that value is taken.

中文：query 与 key 越相似，取用的 value 就越多。
Seed: 000_56d5b8bda4e4cf77.txt:174
Budget: seconds
Expected: weights are in the order of the scores, log-ratios of weights are differences of scores
预期：权重与得分的次序相同，权重之比的对数等于得分之差
Rule: holds if order and ratios agree to 1e-10 and raising one score raises its weight and lowers all others, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import Dot
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    attend = Attend(Dot(8, 8)).double()
    q = torch.randn(4, 3, 8, dtype=torch.float64)
    keys = torch.randn(4, 6, 8, dtype=torch.float64)
    with record(attend) as seen:
        attend(q, attend.remember(keys))
    scores, weights = seen["scores"], seen["weights"]  # (B, T, S) each
    ratios = (weights[..., 1:] / weights[..., :1]).log()
    raised = scores.clone()
    raised[..., 2] += 1.0
    change = raised.softmax(-1) - weights
    others = torch.cat([change[..., :2], change[..., 3:]], -1)
    unmoved = float((change[..., 2] <= 0).sum() + (others >= 0).sum())
    errors = {
        Bilingual("order of weights - order of scores", "权重次序 - 得分次序"): float(
            (scores.argsort(-1) != weights.argsort(-1)).sum()
        ),
        Bilingual("log ratio - difference of scores", "比值的对数 - 得分之差"): largest_error(
            ratios, scores[..., 1:] - scores[..., :1]
        ),
        Bilingual("weights that move the wrong way", "变化方向相反的权重"): unmoved,
    }
    uniform = torch.zeros_like(ratios)
    wrong = Control(Bilingual("uniform weights", "均匀权重"), largest_error(uniform, scores[..., 1:] - scores[..., :1]))
    return identity(errors, 1e-10, wrong)
