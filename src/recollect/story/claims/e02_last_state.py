"""E2: With batch first, the last states are output[:, -1]; of a bidirectional layer the reverse one is at the first step.

中文：batch_first 时最后的状态是 output[:, -1]；双向层的反向末态位于第一个时间步。
Seed: 002_c6efc9a4698e0e4d.txt:126
Budget: seconds
Says: output[-1] takes the last state where the batch comes first.
说法：在 batch_first 的情况下，output[-1] 取到最后的状态。
Expected: output[:, -1] and output[:, 0, H:] are h_n to 1e-12, output[-1] is another sequence's states
预期：output[:, -1] 与 output[:, 0, H:] 等于 h_n，误差 1e-12；output[-1] 则是另一个序列的状态
Rule: holds if the errors are at most 1e-10 and the wrong alternative fails, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import nn

from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

WIDTH = 4


def run(budget: Budget) -> Result:
    x = torch.randn(6, 6, 3, dtype=torch.float64)  # as many sequences as steps: the wrong index has the same shape
    one = nn.RNN(3, WIDTH, batch_first=True, dtype=torch.float64)
    both = nn.RNN(3, WIDTH, batch_first=True, bidirectional=True, dtype=torch.float64)
    output, last = one(x)
    outputs, lasts = both(x)
    errors = {
        Bilingual("output[:, -1] - h_n", "output[:, -1] - h_n"): largest_error(output[:, -1], last[0]),
        Bilingual("reverse: output[:, 0, H:] - h_n", "反向：output[:, 0, H:] - h_n"): largest_error(
            outputs[:, 0, WIDTH:], lasts[1]
        ),
    }
    mistakes = min(largest_error(output[-1], last[0]), largest_error(outputs[:, -1, WIDTH:], lasts[1]))
    return identity(
        errors,
        1e-12,
        Control(Bilingual("output[-1], or the reverse half at -1", "output[-1]，或反向一半取 -1"), mistakes),
    )
