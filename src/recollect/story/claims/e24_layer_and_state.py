"""E24: A hidden layer is computed from this step's inputs; a hidden state carries what earlier steps left.

中文：隐藏层由当前输入算出；隐藏状态携带之前各步留下的信息。
Seed: 002_c6efc9a4698e0e4d.txt:79
Budget: seconds
Says: The output of the first layer of a network is the hidden state.
说法：第一个全连接层的输出就是隐藏状态。
Expected: a window network's hidden layer does not depend on inputs beyond its window, an RNN's state does
预期：窗口网络的隐藏层不依赖窗口以外的输入，RNN 的状态则依赖
Rule: holds if the first dependence is exactly 0 and the second is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.record import record
from recollect.layers.ngram.window import Window
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

ORDER = 3


def run(budget: Budget) -> Result:
    x = torch.randn(1, 8, 4, dtype=torch.float64)
    changed = x.clone()
    changed[:, 0] += 1
    window, rnn = Window(4, ORDER, dtype=torch.float64), RNN(4, 4, dtype=torch.float64)
    values: dict[str, list[torch.Tensor]] = {"window": [], "rnn": []}
    for given in (x, changed):
        for name, layer in (("window", window), ("rnn", rnn)):
            with record(layer) as seen:
                layer(given)
            values[name].append(seen["hidden"][:, -1])
    wrong = Control(Bilingual("an RNN's state", "RNN 的状态"), largest_error(*values["rnn"]))
    return identity({Bilingual("a hidden layer", "隐藏层"): largest_error(*values["window"])}, 0.0, wrong)
