"""C84: An RNN holds the context in a vector of fixed size, TTT in weights, attention in a list.

中文：RNN 用固定大小的向量保存上下文，TTT 用权重，注意力用列表。
Seed: 000_56d5b8bda4e4cf77.txt:191, 000_56d5b8bda4e4cf77.txt:192, 000_56d5b8bda4e4cf77.txt:197
Budget: seconds
Expected: in numbers of width d: RNN d; one TTT head d² twice (weights, and the mini-batch's gradient), its MLP 8d² twice; attention 2nd after n steps
预期：宽度为 d 时所存的数：RNN 为 d；一个 TTT 头为 d² 的两倍（权重与小批量内的梯度），其 MLP 为 8d² 的两倍；注意力读 n 步后为 2nd
Rule: holds if all counts are exact, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.ttt.layer import TTTMLP, TTTLinear
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

D = 16
STEPS = (1, 16, 64, 256)
CLOCK = 8  # bytes of the length, an integer


@torch.no_grad()
def run(budget: Budget) -> Result:
    layers: dict[str, tuple[AnyLayer, dict[int, int]]] = {
        "rnn": (RNN(D, D), dict.fromkeys(STEPS, D * 4)),
        "ttt-linear": (TTTLinear(D, 1), dict.fromkeys(STEPS, 2 * D * D * 4 + CLOCK)),
        "ttt-mlp": (TTTMLP(D, 1), dict.fromkeys(STEPS, 2 * 8 * D * D * 4 + CLOCK)),
        "attention": (SelfAttention(D, 1), {n: 2 * n * D * 4 + CLOCK for n in STEPS}),
    }
    measured = {name: _bytes(layer) for name, (layer, _) in layers.items()}
    errors = {
        name: float(max(abs(measured[name][n] - expected[n]) for n in STEPS)) for name, (_, expected) in layers.items()
    }
    chart = Chart(
        Bilingual(f"Bytes remembered, width {D}", f"记忆字节数，宽度 {D}"),
        Bilingual("steps read", "已读步数"),
        Bilingual("bytes", "字节"),
        [Curve(name, [(float(n), float(found[n])) for n in STEPS]) for name, found in measured.items()],
        log_x=True,
        log_y=True,
    )
    grown = measured["attention"][STEPS[-1]] - measured["attention"][STEPS[0]]
    words = {name: ", ".join(f"{found[n]:,}" for n in (1, 256)) for name, found in measured.items()}
    found = Bilingual(
        "Bytes after 1 and 256 steps: " + "; ".join(f"{name} {word}" for name, word in words.items()) + ".",
        "读 1 步与 256 步后的字节数：" + "；".join(f"{name} {word}" for name, word in words.items()) + "。",
    )
    wrong = Control(Bilingual("if attention did not grow", "假如注意力不增长"), float(grown))
    return identity(errors, 0.0, wrong, found, chart)


def _bytes(layer: AnyLayer) -> dict[int, int]:
    return {n: layer(torch.randn(1, n, D))[1].nbytes for n in STEPS}
