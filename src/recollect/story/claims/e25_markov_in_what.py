"""E25: A Markov chain depends on the last τ observations; an RNN depends on all of them, by way of its state.

中文：马尔可夫链只依赖最近 τ 个观测；RNN 通过状态依赖全部观测。
Seed: 002_c6efc9a4698e0e4d.txt:60
Budget: seconds
Says: The state of the model is Markov.
说法：模型的状态是马尔可夫的。
Expected: an earlier observation changes nothing beyond τ in a chain; given its state, nothing in an RNN; without, it does
预期：对马尔可夫链，τ 步以前的观测没有影响；对 RNN，给定状态后更早的观测也没有影响，不给定则有
Rule: holds if the first two are exactly 0 and the third is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.ngram.markov import Markov
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    chain = Markov(5, order=2)
    ids = torch.randint(5, (1, 200))
    chain.count(ids)
    text, other = ids[:, :10], ids[:, :10].clone()
    other[:, 0] = (text[:, 0] + 1) % 5
    rnn = RNN(3, 4, dtype=torch.float64)
    x = torch.randn(1, 10, 3, dtype=torch.float64)
    later = x.clone()
    later[:, 0] += 1
    _, memory = rnn(x[:, :6])
    errors = {
        Bilingual("chain: an observation beyond τ", "马尔可夫链：τ 步以前的观测"): largest_error(
            chain(text)[0][:, 3:], chain(other)[0][:, 3:]
        ),
        Bilingual("RNN, given its state", "RNN，给定状态"): largest_error(
            rnn(x[:, 6:], memory)[0], rnn(later[:, 6:], memory)[0]
        ),
    }
    wrong = Control(
        Bilingual("RNN, an early observation", "RNN，改变早先的观测"),
        largest_error(rnn(x)[0][:, 6:], rnn(later)[0][:, 6:]),
    )
    return identity(errors, 0.0, wrong)
