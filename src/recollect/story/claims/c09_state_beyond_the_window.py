"""C9: A hidden state represents the past better than a window of the last values.

中文：用隐藏状态表示过去，比用最近几个值的窗口更好。
Seed: 002_c6efc9a4698e0e4d.txt:79
Budget: seconds
Expected: asked for a symbol that lies beyond its window, a window model is at chance; a GRU recalls it over 9 steps
预期：要求回忆窗口之外的符号时，窗口模型只有随机水平；GRU 能回忆 9 步以前的符号
Rule: holds if the interval of accuracy, GRU minus window, is above 0.5, does not hold if it is below 0, else not shown; the window must be at chance
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS, GAP, ORDER, WIDTH = 4, 9, 4, 32
CHANCE = 1 / SYMBOLS
ROWS = 1000  # of the test


def run(budget: Budget) -> Result:
    steps = 20 if budget.is_small else 300
    seeds = range(min(budget.seeds, 3))
    window = [_accuracy(Window(WIDTH, ORDER), seed, steps) for seed in seeds]
    state = [_accuracy(GRU(WIDTH, WIDTH), seed, steps) for seed in seeds]
    gained = [one - other for one, other in zip(state, window, strict=True)]
    low, high = interval(gained)
    mean = sum(gained) / len(gained)
    found = Bilingual(
        f"A symbol {GAP} steps ago: the GRU is right in {_share(state):.0%}, a window of {ORDER} in {_share(window):.0%} "
        f"(chance {CHANCE:.0%}).",
        f"{GAP} 步以前的符号：GRU 正确率 {_share(state):.0%}，窗口 {ORDER} 的模型 {_share(window):.0%}（随机 {CHANCE:.0%}）。",
    )
    verdict: Verdict = "holds" if low > 0.5 else "does not hold" if high < 0 else "not shown"
    is_chance = abs(_share(window) - CHANCE) < 0.05
    leak = Check(
        Bilingual("the window, which cannot see the symbol, is at chance", "看不到该符号的窗口处于随机水平"), is_chance
    )
    return Result(verdict, found, mean, (low, high), Control(Bilingual("chance", "随机"), CHANCE), leak)


def _share(values: list[float]) -> float:
    return sum(values) / len(values)


def _accuracy(layer: AnyLayer, seed: int, steps: int) -> float:
    """Train a layer to give the first symbol back after the gap; return its accuracy on new sequences."""
    torch.manual_seed(seed)
    model = Stack(Linear(SYMBOLS, WIDTH), layer, Linear(WIDTH, SYMBOLS))
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        x, first = _drawn(64, draw)
        loss = F.cross_entropy(model(x)[0][:, -1], first)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        x, first = _drawn(ROWS, draw)
        return float((model(x)[0][:, -1].argmax(1) == first).float().mean())


def _drawn(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one-hot sequences (B, GAP + 1, SYMBOLS) and their first symbols (B,)."""
    ids = torch.randint(SYMBOLS, (rows, GAP + 1), generator=draw)
    return F.one_hot(ids, SYMBOLS).float(), ids[:, 0]
