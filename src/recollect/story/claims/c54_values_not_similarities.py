"""C54: Attention returns weighted similarity scores, and learning is updating the attention weights.

中文：注意力返回加权相似度分数，学习就是更新注意力权重。
Seed: 003_d30a3ba1164faeec.txt:217
Budget: seconds
Expected: the output is the weighted sum of values; with parameters frozen two inputs have different weights
预期：输出是 value 的加权和；参数冻结时，两个输入的权重仍不相同
Rule: holds if the output does not follow the values; does not hold if it is Σ a v to 1e-12 and weights change without learning
Exact: does not hold
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import General
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    attend = Attend(General(8, 8)).double()
    weights = []
    errors = []
    for _ in range(2):
        keys = torch.randn(2, 5, 8, dtype=torch.float64)
        with record(attend) as seen:
            y = attend(torch.randn(2, 3, 8, dtype=torch.float64), attend.remember(keys))
        weights.append(seen["weights"])
        errors.append(largest_error(y, seen["weights"] @ keys))
    change = largest_error(*weights)
    found = Bilingual(
        f"The output is Σ a v to {max(errors):.0e}; with frozen parameters the weights change by {change:.2f} from one input to another.",
        f"输出等于 Σ a v，误差 {max(errors):.0e}；参数冻结时，权重随输入变化达 {change:.2f}。",
    )
    check = Check(Bilingual("an identity: no data are held out", "恒等式：不涉及留出数据"), True)
    verdict: Verdict = "does not hold" if max(errors) < 1e-12 and change > 1e-6 else "holds"
    return Result(
        verdict,
        found,
        change,
        (change, change),
        Control(Bilingual("if weights were learned", "假如权重是学到的"), 0.0),
        check,
    )
