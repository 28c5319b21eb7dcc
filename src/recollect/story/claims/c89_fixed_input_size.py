"""C89: Perceptrons and convolutional networks have inputs of a fixed size; recurrent networks read any length.

中文：多层感知机与卷积网络的输入大小固定；循环网络可以读取任意长度。
Seed: 002_c6efc9a4698e0e4d.txt:23, 003_d30a3ba1164faeec.txt:22
Budget: seconds
Expected: a perceptron refuses another length; a GRU reads it, and so do convolutions under a mean over positions
预期：多层感知机拒绝其他长度；GRU 可以读取，对位置取平均的卷积网络也可以
Rule: holds if … where the perceptron alone refuses another length and padding behind a row changes neither of the others; else does not hold
Exact: holds if
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recollect.core.padding import pad
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

LENGTHS = (12, 5, 40)
WIDTH = 6


@torch.no_grad()
def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    rows = [torch.randn(length, WIDTH, dtype=torch.float64) for length in LENGTHS]
    perceptron = nn.Sequential(nn.Flatten(), nn.Linear(LENGTHS[0] * WIDTH, 4)).double()
    gru = GRU(WIDTH, 4, dtype=torch.float64)
    filters = nn.Conv1d(WIDTH, 4, 3, padding=1).double()

    def convolved(x: Tensor) -> Tensor:
        return filters(x.transpose(1, 2)).relu().mean(2)

    read = {"GRU": lambda x: gru(x)[1].hidden, "convolutions under a mean": convolved}
    refused = [not _reads(perceptron, row) for row in rows]
    is_read = all(_reads(one, row) for one in read.values() for row in rows)
    x, valid = pad(rows)
    together = gru(x, valid=valid)[1].hidden
    alone = torch.cat([gru(row[None])[1].hidden for row in rows])
    masked = filters(x.transpose(1, 2)).relu().masked_fill(~valid[:, None], 0.0).sum(2) / valid.sum(1, keepdim=True)
    errors = {
        "GRU, padded - alone": largest_error(together, alone),
        "convolutions, padded - alone": largest_error(masked, torch.cat([convolved(row[None]) for row in rows])),
    }
    wrong = Control(
        Bilingual("a mean that counts the padding", "把填充也计入平均"),
        largest_error(convolved(x), torch.cat([convolved(row[None]) for row in rows])),
    )
    found = Bilingual(
        f"A perceptron for {LENGTHS[0]} steps refuses {LENGTHS[1]} and {LENGTHS[2]}; a GRU and convolutions under a mean "
        "read all three, padded as alone.",
        f"为 {LENGTHS[0]} 步构造的感知机拒绝 {LENGTHS[1]} 步和 {LENGTHS[2]} 步；GRU 与对位置取平均的卷积三者都能读，填充后结果不变。",
    )
    result = identity(errors, 1e-12, wrong, found)
    condition = Bilingual("the network ends in a fully connected layer over positions", "网络末端是对各位置全连接的层")
    is_so = result.verdict == "holds" and refused == [False, True, True] and is_read
    return Result(
        "holds if" if is_so else "does not hold",
        result.found,
        result.effect,
        result.interval,
        result.baseline,
        result.leak,
        condition if is_so else None,
        rows=result.rows,
    )


def _reads(model: Callable[[Tensor], Tensor], row: Tensor) -> bool:
    try:
        return bool(model(row[None]).isfinite().all())
    except RuntimeError:
        return False
