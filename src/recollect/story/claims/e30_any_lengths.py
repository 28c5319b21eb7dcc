"""E30: One RNN maps sequences of any two lengths: it reads the source and a separator, and then generates the target.

中文：一个 RNN 就能完成任意两种长度之间的映射：读入源序列与分隔符，然后生成目标。
Seed: 003_d30a3ba1164faeec.txt:167, 000_56d5b8bda4e4cf77.txt:54
Budget: seconds
Says: Only equal lengths; or only N to N, 1 to N and N to 1.
说法：只能等长；或只能 N 到 N、1 到 N、N 到 1。
Expected: 1 → 5, 5 → 1, 3 → 7 and 4 → 4 with the same network
Rule: holds if every output has the length asked for, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

SEPARATOR = 0
LENGTHS = ((1, 5), (5, 1), (3, 7), (4, 4))


@torch.no_grad()
def run(budget: Budget) -> Result:
    model = LanguageModel("lstm", 10, width=16, layers=1).eval()
    errors = {}
    for read, written in LENGTHS:
        source = (torch.randint(9, (read,)) + 1).tolist()
        found = generate(model, [[*source, SEPARATOR]], Settings(tokens=written, greedy=True))[0].ids
        errors[f"{read} → {written}"] = float(abs(len(found) - written))
    wrong = Control(
        Bilingual("if outputs were as long as inputs", "假如输出与输入等长"), float(max(abs(m - n) for m, n in LENGTHS))
    )
    return identity(errors, 0.0, wrong)
