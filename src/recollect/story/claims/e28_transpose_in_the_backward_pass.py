"""E28: The backward pass of the published numpy network needs W_hhᵀ; with W_hh its gradient is wrong.

中文：公开的 numpy RNN 反向传播应使用 W_hhᵀ；用 W_hh 时梯度是错的。
Seed: 003_d30a3ba1164faeec.txt:94, 003_d30a3ba1164faeec.txt:136
Budget: seconds
Says: The class as it stands there has two forward methods and no backward pass; the one published with it multiplies by W_hh.
说法：文中的类有两个 forward，没有反向传播；与它一同公开的反向传播乘以 W_hh。
Expected: relative error against finite differences: below 1e-5 with the transpose, above 0.01 without
预期：与有限差分的相对误差：用转置时低于 1e-5，不用时高于 0.01
Rule: holds if both are so, else does not hold
Exact: holds
"""

from __future__ import annotations

import numpy as np

from recollect.layers.recurrent.numpy_rnn import Array, NumpyRNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

SMALL = 1e-5


class PublishedBackward(NumpyRNN):
    """The network with the published backward pass."""

    def one_step_back(self, d_total: Array) -> Array:
        """Return the gradient without the transpose."""
        d_h: Array = self.W_hh @ d_total
        return d_h


def run(budget: Budget) -> Result:
    right, published = (_error(kind) for kind in (NumpyRNN, PublishedBackward))
    wrong = Control(Bilingual("as published", "按公开代码"), published)
    return identity({Bilingual("with the transpose", "使用转置"): right}, 1e-5, wrong)


def _error(kind: type[NumpyRNN]) -> float:
    """Return the relative error of ∂ Σ y / ∂W_hh against finite differences."""
    rng = np.random.default_rng(0)
    network = kind(3, 2, 6, rng=rng)
    network.W_hh, network.W_xh = rng.standard_normal((6, 6)) / 2, rng.standard_normal((6, 3))
    network.W_hy = rng.standard_normal((2, 6))
    inputs = [np.eye(3)[[i % 3]].T for i in range(8)]
    network.forward(inputs)
    found = network.backward(np.ones((2, 1)))["W_hh"]
    expected = np.zeros_like(found)
    for place in np.ndindex(found.shape):
        ends = []
        for move in (SMALL, -SMALL):
            network.W_hh[place] += move
            ends.append(network.forward(inputs)[0].sum())
            network.W_hh[place] -= move
        expected[place] = (ends[0] - ends[1]) / (2 * SMALL)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
