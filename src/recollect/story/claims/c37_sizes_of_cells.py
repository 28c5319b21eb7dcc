"""C37: A GRU has more weights to learn than an RNN: a few more.

中文：GRU 比 RNN 多了几个要学习的权重。
Seed: 003_d30a3ba1164faeec.txt:146
Budget: seconds
Expected: RNN : GRU : LSTM = 1 : 3 : 4 at equal width, 33,024, 99,072 and 132,096 at 128
预期：宽度相同时 RNN : GRU : LSTM = 1 : 3 : 4，宽度 128 时为 33,024、99,072 与 132,096
Rule: holds if the ratios are exactly 3 and 4, else does not hold
Exact: holds
"""

from __future__ import annotations

from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

WIDTH = 128


def run(budget: Budget) -> Result:
    rnn, gru, lstm = (sum(p.numel() for p in kind(WIDTH, WIDTH).parameters()) for kind in (RNN, GRU, LSTM))
    found = Bilingual(
        f"{rnn:,}, {gru:,} and {lstm:,} parameters at width {WIDTH}: 1 : {gru / rnn:g} : {lstm / rnn:g}.",
        f"宽度 {WIDTH} 时为 {rnn:,}、{gru:,} 与 {lstm:,} 个参数：1 : {gru / rnn:g} : {lstm / rnn:g}。",
    )
    wrong = Control(Bilingual("if all had equally many", "假如三者一样多"), 2.0)
    return identity({"GRU / RNN - 3": gru / rnn - 3, "LSTM / RNN - 4": lstm / rnn - 4}, 0.0, wrong, found)
