"""C12: An RNN with its read-out has three weight matrices and two biases.

中文：带输出层的 RNN 只有三组权重和两个偏置。
Seed: 003_d30a3ba1164faeec.txt:67
Budget: seconds
Expected: torch's cell stores two hidden biases; merged into one, outputs differ by at most 1e-12
预期：torch 的单元存有两个隐藏偏置；合并为一个后，输出相差不超过 1e-12
Rule: holds if the merged cell's error is at most 1e-12 and five tensors remain, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import nn

from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    theirs = nn.RNN(5, 7, batch_first=True, dtype=torch.float64)
    ours = RNN(5, 7, dtype=torch.float64)
    two = {name.removesuffix("_l0"): tensor for name, tensor in theirs.state_dict().items()}
    one = {**two, "bias_ih": two["bias_ih"] + two["bias_hh"], "bias_hh": torch.zeros(7, dtype=torch.float64)}
    x = torch.randn(3, 9, 5, dtype=torch.float64)  # (B, T, D)
    expected = theirs(x)[0]
    ours.load_state_dict(one)
    merged = largest_error(ours(x)[0], expected)
    ours.load_state_dict({**one, "bias_ih": two["bias_ih"]})
    lost = largest_error(ours(x)[0], expected)
    left = len(two) - 1 + len(list(Linear(7, 3).parameters()))  # one bias less, and the read-out's matrix and bias
    errors = {
        Bilingual("b_ih + b_hh as one bias", "b_ih + b_hh 合为一个偏置"): merged,
        Bilingual("tensors left - 5", "剩余张量数 - 5"): float(abs(left - 5)),
    }
    return identity(errors, 1e-12, Control(Bilingual("the second bias dropped", "丢掉第二个偏置"), lost))
