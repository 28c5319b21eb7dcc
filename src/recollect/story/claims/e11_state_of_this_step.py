"""E11: A decoder predicts the t-th symbol from its state at step t, the symbol before, and the context.

中文：解码器由第 t 步的状态、前一个符号和上下文预测第 t 个符号。
Seed: 000_56d5b8bda4e4cf77.txt:80
Budget: seconds
Says: It predicts from the state of the step before.
说法：由前一步的状态预测。
Expected: logits at t are the output map of the state at t
预期：第 t 步的 logits 是第 t 步状态的输出映射
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    model = Translator("sutskever", 12, 12, width=8, cell="gru").double().eval()
    source, target = torch.randint(12, (3, 5)), torch.randint(12, (3, 6))
    with record(model) as seen:
        logits, _ = model(target, model.remember(source))
    name = max((name for name in seen if name.endswith(".hidden") and seen[name].shape[:2] == target.shape), key=len)
    states = seen[name]  # (B, T, H)
    out = model.decoder.out
    wrong = Control(
        Bilingual("from the state before", "由前一步状态"), largest_error(out(states[:, :-1]), logits[:, 1:])
    )
    return identity({Bilingual("logits - W h_t", "logits - W h_t"): largest_error(out(states), logits)}, 1e-10, wrong)
