"""E11b: The context of a fixed-vector model has one component for each hidden unit, whatever the length of the source.

中文：固定向量模型的上下文，其分量个数等于隐藏单元数，与源序列长度无关。
Seed: 000_56d5b8bda4e4cf77.txt:69
Budget: seconds
Says: The context has a component for each step of the source.
说法：上下文的分量与源序列的每个时间步对应。
Expected: the same number of components for 3 and 40 source symbols
预期：源序列有 3 个与 40 个符号时，分量个数相同
Rule: holds if the two shapes are equal while attention's source grows, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    sizes = {family: [_bytes(family, length) for length in (3, 40)] for family in ("cho", "bahdanau")}
    grown = {family: float(second - first) for family, (first, second) in sizes.items()}
    wrong = Control(
        Bilingual("bytes that attention's source grows by", "注意力的源记忆增长的字节数"), grown["bahdanau"]
    )
    return identity({Bilingual("bytes that the context grows by", "上下文增长的字节数"): grown["cho"]}, 0.0, wrong)


def _bytes(family: str, length: int) -> int:
    model = Translator(family, 12, 12, width=8).eval()
    return model.remember(torch.randint(12, (1, length))).nbytes
