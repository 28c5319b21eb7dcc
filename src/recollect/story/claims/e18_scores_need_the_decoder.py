"""E18: A score depends on the encoder's state and on the decoder's.

中文：得分既取决于编码器状态，也取决于解码器状态。
Seed: 000_56d5b8bda4e4cf77.txt:181
Budget: seconds
Says: Scores are computed from the encoder's states.
说法：得分由编码器各状态算出。
Expected: the same source has other scores for another decoder state
预期：同一个源序列，解码器状态不同，得分就不同
Rule: holds if the scores are those of the formula and change with the query, else does not hold
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
    keys, q = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 2, 8, dtype=torch.float64)
    with record(attend) as seen:
        attend(q, attend.remember(keys))
    scores = seen["scores"]  # (B, T, S)
    wrong = Control(
        Bilingual("if the decoder's state did not matter", "假如与解码器状态无关"),
        largest_error(scores[:, 0], scores[:, 1]),
    )
    return identity({Bilingual("scores - q · k", "得分 - q · k"): largest_error(scores, q @ keys.mT)}, 1e-12, wrong)
