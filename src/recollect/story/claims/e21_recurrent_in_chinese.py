"""E21: The Chinese word for recurrent networks is that for circulating; the one for recursive names tree-shaped networks.

中文：recurrent 译作“循环”；“递归”网络是树形的。
Seed: 001_9b45f3fd679b11ad.txt:24, 001_9b45f3fd679b11ad.txt:29
Budget: seconds
Says: RNNs are called recursive networks.
说法：把 RNN 称作递归神经网络。
Expected: no Chinese text of the line of models or of the claims calls a recurrent network recursive
预期：模型谱系与各论断的中文里，没有一处把循环网络称为“递归”
Rule: holds if none does and the right word occurs, else does not hold
Exact: holds
"""

from __future__ import annotations

from recollect.models.line import LINE
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.story.register import claims
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    texts = [station.idea["zh"] for station in LINE] + [claim.text.zh for claim in claims() if claim.id != "E21"]
    errors = {Bilingual("recursive", "“递归神经网络”的条目数"): float(sum("递归神经网络" in text for text in texts))}
    wrong = Control(
        Bilingual("texts with the right word", "用词正确的条目数"), float(sum("循环" in text for text in texts))
    )
    return identity(errors, 0.0, wrong)
