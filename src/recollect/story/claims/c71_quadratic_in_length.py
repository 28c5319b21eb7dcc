"""C71: Attention's computation grows with the square of the length, and its memory is the list of keys and values.

中文：注意力的计算量随长度平方增长，其记忆是键值列表。
Seed: 000_56d5b8bda4e4cf77.txt:209, 000_56d5b8bda4e4cf77.txt:210
Budget: seconds
Expected: counted operations of scores and sums: 4 times as many for twice the length; the rest 2 times; bytes = 2 · layers · n · d · 4
预期：计数的运算量：长度加倍，打分与求和变为 4 倍，其余变为 2 倍；字节数 = 2 · 层数 · n · d · 4
Rule: holds if all three are exact, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from recollect.core.record import readable
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import FeedForward
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

WIDTH, LAYERS = 32, 2
LENGTHS = (64, 128, 256, 512)


@torch.no_grad()
def run(budget: Budget) -> Result:
    attention = {n: _operations(SelfAttention(WIDTH, 1, bias=False), n) for n in LENGTHS}
    maps = {n: 2 * 4 * n * WIDTH**2 for n in LENGTHS}  # of queries, keys, values and outputs
    mixing = {n: attention[n] - maps[n] for n in LENGTHS}
    forward = {n: _operations(FeedForward(WIDTH, 4 * WIDTH, bias=False), n) for n in LENGTHS}
    model = LanguageModel("transformer", 20, width=WIDTH, layers=LAYERS, heads=2)
    sizes = {n: sum(t.nbytes for t in _keys_values(model, n)) for n in LENGTHS}
    errors = {
        Bilingual("scores and sums: ratio - 4", "打分与求和：倍数 - 4"): max(
            abs(mixing[2 * n] / mixing[n] - 4) for n in LENGTHS[:-1]
        ),
        Bilingual("feed-forward: ratio - 2", "前馈：倍数 - 2"): max(
            abs(forward[2 * n] / forward[n] - 2) for n in LENGTHS[:-1]
        ),
        Bilingual("bytes - 2 · layers · n · d · 4", "字节数 - 2 · 层数 · n · d · 4"): float(
            max(abs(sizes[n] - 2 * LAYERS * n * WIDTH * 4) for n in LENGTHS)
        ),
    }
    chart = Chart(
        Bilingual(f"Operations of one layer, width {WIDTH}", f"一层的运算量，宽度 {WIDTH}"),
        Bilingual("steps", "步数"),
        Bilingual("operations", "运算量"),
        [
            Curve(name, [(float(n), float(found[n])) for n in LENGTHS])
            for name, found in (("scores and sums", mixing), ("feed-forward", forward))
        ],
        log_x=True,
        log_y=True,
    )
    return identity(errors, 1e-9, Control(Bilingual("if linear", "若为线性"), 2.0), chart=chart)


def _operations(layer: AnyLayer, steps: int) -> int:
    with FlopCounterMode(display=False) as counter, readable():
        layer(torch.randn(1, steps, WIDTH))
    return counter.get_total_flops()


def _keys_values(model: LanguageModel, steps: int) -> list[torch.Tensor]:
    memory = model(torch.randint(20, (1, steps)))[1]
    parts = [memory]
    found = []
    while parts:
        part = parts.pop()
        parts += list(getattr(part, "layers", ()))
        found += [getattr(part, name) for name in ("keys", "values") if hasattr(part, name)]
    return found
