"""E4: Training maximises the conditional log-likelihood.

中文：训练是最大化条件对数似然。
Seed: 003_d30a3ba1164faeec.txt:169
Budget: seconds
Says: Training minimises the conditional log-likelihood.
说法：训练是最小化条件对数似然。
Expected: a small step down the negative log-likelihood raises the probability of the data, a step down the log-likelihood lowers it
预期：沿负对数似然下降一小步，数据的概率升高；沿对数似然下降一小步，概率降低
Rule: holds if the first raises and the second lowers it, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

RATE = 1e-3


def run(budget: Budget) -> Result:
    rises = {sign: _rise(sign) for sign in (1.0, -1.0)}
    wrong = Control(Bilingual("fall of log p when it is minimised", "若最小化，log p 的下降"), -rises[-1.0])
    return identity(
        {Bilingual("fall of log p when it is maximised", "最大化时 log p 的下降"): max(0.0, -rises[1.0])}, 0.0, wrong
    )


def _rise(sign: float) -> float:
    """Return by how much a gradient step along ±log p changes log p(target | source)."""
    torch.manual_seed(0)
    model = Translator("sutskever", 10, 10, width=8).double()
    source, target = torch.randint(10, (4, 5)), torch.randint(10, (4, 6))
    likelihoods = []
    for _ in range(2):
        logits, _ = model(target[:, :-1], model.remember(source))
        likelihood = logits.log_softmax(-1).gather(2, target[:, 1:, None]).sum()
        likelihoods.append(likelihood.item())
        gradients = torch.autograd.grad(likelihood, list(model.parameters()), allow_unused=True)
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                if gradient is not None:
                    weight.add_(sign * RATE * gradient)
    return likelihoods[1] - likelihoods[0]
