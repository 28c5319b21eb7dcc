"""E45: A model with the context at every step has one name here, cho.

中文：每步输入上下文的模型在此只有一个名字：cho。
Seed: 000_56d5b8bda4e4cf77.txt:46
Budget: seconds
Says: Contextualize RNN, later Contextualized RNN.
说法：先写 Contextualize RNN，后写 Contextualized RNN。
Expected: the register of models has one station for it, and neither spelling of the other name
预期：模型谱系中这种模型只有一个条目，另一个名称的两种拼法都不出现
Rule: holds if it occurs once and the other never, else does not hold
Exact: holds
"""

from __future__ import annotations

from recollect.models.line import LINE
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    names = [station.name for station in LINE]
    errors = {
        Bilingual("stations named cho, less 1", "名为 cho 的条目数 - 1"): float(names.count("cho") - 1),
        Bilingual("other names", "其他名称"): float(sum("contextualize" in name for name in names)),
    }
    return identity(errors, 0.0, Control(Bilingual("stations of the line", "模型总数"), float(len(names))))
