"""E11c: Two models are mixed up: one has the source in its first state only, the other at every step.

中文：两个不同的模型被混在一起：一个只在初始状态里含有源信息，另一个每一步都输入。
Seed: 000_56d5b8bda4e4cf77.txt:75, 000_56d5b8bda4e4cf77.txt:80, 000_56d5b8bda4e4cf77.txt:94
Budget: seconds
Says: The simple model has the context in every step, and yet is blamed for using it at the start only.
说法：简单模型的公式每一步都用到上下文，却又被批评只在开头使用。
Expected: with its state exchanged, the first forgets the source entirely, the second does not
预期：换掉状态后，前者完全忘记源序列，后者没有
Rule: holds if the first's difference is exactly 0 and the second's is not, else does not hold
Exact: holds
"""

from __future__ import annotations

from dataclasses import replace

import torch

from recollect.core.memory import Layers
from recollect.models.decoders import Summarised
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    wrong = Control(Bilingual("context at every step", "每步输入上下文"), _difference("cho"))
    return identity(
        {Bilingual("context in the first state only", "只在初始状态中的上下文"): _difference("sutskever")}, 0.0, wrong
    )


def _difference(family: str) -> float:
    """Return how far two sources' outputs differ when both get the same decoder state."""
    model = Translator(family, 12, 12, width=8).double().eval()
    target = torch.randint(12, (1, 6), generator=torch.Generator().manual_seed(0))
    first, second = (model.remember(torch.full((1, 5), symbol)) for symbol in (3, 7))
    if isinstance(first, Layers):  # the states are all that there is
        second = first
    else:
        assert isinstance(first, Summarised)
        assert isinstance(second, Summarised)
        second = replace(second, state=first.state)
    return largest_error(model(target, first)[0], model(target, second)[0])
