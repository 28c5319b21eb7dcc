"""C2: The probability of a sequence is the product of the conditional probabilities of its symbols.

中文：一个序列的概率等于各符号条件概率的乘积。
Seed: 002_c6efc9a4698e0e4d.txt:50, 002_c6efc9a4698e0e4d.txt:52
Budget: seconds
Expected: over all 3⁵ strings the probabilities sum to 1, and each is the product, to 1e-6
预期：对全部 3⁵ 个串，概率之和为 1，且每个串的概率都等于各条件概率之积，误差 1e-6
Rule: holds if both errors are at most 1e-6, else does not hold
Exact: holds
"""

from __future__ import annotations

from itertools import product

import torch

from recollect.layers.ngram.markov import Markov
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH = 3, 5


def run(budget: Budget) -> Result:
    strings = torch.tensor(list(product(range(SYMBOLS), repeat=LENGTH)))  # (243, 5)
    markov = Markov(SYMBOLS, order=2)
    markov.count(torch.randint(SYMBOLS, (4, 50), generator=torch.Generator().manual_seed(0)))
    stepwise, whole = _markov(markov, strings)
    lstm = LanguageModel("lstm", SYMBOLS + 1, width=8, layers=1).double()
    learned = _learned(lstm, strings)
    errors = {
        Bilingual("markov, sum of all - 1", "马尔可夫，总和 - 1"): abs(float(whole.exp().sum()) - 1),
        Bilingual("markov, Σ log p - log p", "马尔可夫，Σ log p - log p"): float((stepwise - whole).abs().max()),
        Bilingual("lstm, sum of all - 1", "LSTM，总和 - 1"): abs(float(learned.exp().sum()) - 1),
    }
    unordered = _markov_without_order(markov, strings)
    wrong = Control(
        Bilingual("symbols as if independent", "把符号当作相互独立"), float((unordered - whole).abs().max())
    )
    return identity(errors, 1e-6, wrong)


def _markov(model: Markov, strings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log p of each string read symbol by symbol, and in one call."""
    total = torch.zeros(len(strings), dtype=torch.float64)
    first = Markov.score(model, strings)[:, 0]
    memory = None
    for t in range(LENGTH - 1):
        logprobs, memory = model(strings[:, t : t + 1], memory)
        total += logprobs[:, 0].gather(1, strings[:, t + 1 : t + 2])[:, 0]
    return total + first, model.score(strings).sum(1)


def _markov_without_order(model: Markov, strings: torch.Tensor) -> torch.Tensor:
    """Return the sum of each symbol's log p at the beginning of a row."""
    return torch.stack([model.score(strings[:, t : t + 1])[:, 0] for t in range(LENGTH)]).sum(0)


@torch.no_grad()
def _learned(model: LanguageModel, strings: torch.Tensor) -> torch.Tensor:
    """Return log p of the strings after a begin symbol, which is never predicted."""
    begin = torch.full((len(strings), 1), SYMBOLS)
    logits, _ = model(torch.cat([begin, strings[:, :-1]], 1))
    logprobs = logits[..., :SYMBOLS].log_softmax(-1)
    return logprobs.gather(2, strings[..., None])[..., 0].sum(1)
