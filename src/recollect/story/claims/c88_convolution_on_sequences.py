"""C88: Recurrent networks suit sequences, convolutional networks suit images.

中文：RNN 适合序列，CNN 适合图像。
Seed: 000_56d5b8bda4e4cf77.txt:5, 000_56d5b8bda4e4cf77.txt:6
Budget: seconds
Expected: causal convolutions with growing distances (TCN) recall a symbol 9 steps ago as well as a GRU
预期：距离逐层加倍的因果卷积（TCN）回忆 9 步以前的符号，与 GRU 一样好
Rule: holds if the interval of accuracy, GRU minus convolutions, is above 0; does not hold if it is below 0.05 and the convolutions are right in at least 0.9; else not shown; the last symbol alone must be at chance
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS, GAP, WIDTH = 4, 9, 32
CHANCE = 1 / SYMBOLS
ROWS, SAME, LEARNED = 1000, 0.05, 0.9


class CausalConvolutions(nn.Module):
    """Five residual layers of kernel 2 at distances 1, 2, 4, 8, 16 (Bai et al. 2018): 32 steps are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SYMBOLS, WIDTH)
        self.layers = nn.ModuleList([nn.Conv1d(WIDTH, WIDTH, 2, dilation=2**n) for n in range(5)])
        self.last = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (B, V) after the last step."""
        y = self.first(x).transpose(1, 2)  # (B, D, T)
        for n, layer in enumerate(self.layers):
            y = y + F.relu(layer(F.pad(y, (2**n, 0))))
        out: Tensor = self.last(y[:, :, -1])
        return out


class Recurrent(nn.Module):
    """A GRU between two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Stack(Linear(SYMBOLS, WIDTH), GRU(WIDTH, WIDTH), Linear(WIDTH, SYMBOLS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (B, V) after the last step."""
        return self.body(x)[0][:, -1]


def run(budget: Budget) -> Result:
    steps = 20 if budget.is_small else 300
    seeds = range(min(budget.seeds, 3))
    recurrent = [_accuracy(Recurrent, seed, steps) for seed in seeds]
    convolved = [_accuracy(CausalConvolutions, seed, steps) for seed in seeds]
    low, high = interval([one - other for one, other in zip(recurrent, convolved, strict=True)])
    gru, tcn = (sum(values) / len(values) for values in (recurrent, convolved))
    alone = _accuracy(lambda: nn.Sequential(_Last(), nn.Linear(SYMBOLS, SYMBOLS)), 0, steps)
    found = Bilingual(
        f"A symbol {GAP} steps ago: causal convolutions are right in {tcn:.0%}, a GRU in {gru:.0%}, the last symbol alone in "
        f"{alone:.0%}.",
        f"{GAP} 步以前的符号：因果卷积正确率 {tcn:.0%}，GRU {gru:.0%}，只看最后一个符号 {alone:.0%}。",
    )
    is_chance = abs(alone - CHANCE) < 0.05
    leak = Check(Bilingual("the last symbol alone is at chance", "只看最后一个符号处于随机水平"), is_chance)
    return Result(
        verdict_of(low, high, tcn), found, gru - tcn, (low, high), Control(Bilingual("chance", "随机"), CHANCE), leak
    )


def verdict_of(low: float, high: float, convolved: float) -> Verdict:
    """Return the verdict of the interval of accuracy, GRU minus convolutions, and of the convolutions' accuracy."""
    if low > 0:
        return "holds"
    return "does not hold" if high < SAME and convolved >= LEARNED else "not shown"


class _Last(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


def _accuracy(make: type[nn.Module] | object, seed: int, steps: int) -> float:
    """Train a model to give the first symbol back after the gap; return its accuracy on new sequences."""
    torch.manual_seed(seed)
    model: nn.Module = make()  # type: ignore[operator]
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        x, first = _drawn(64, draw)
        loss = F.cross_entropy(model(x), first)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        x, first = _drawn(ROWS, draw)
        return float((model(x).argmax(1) == first).float().mean())


def _drawn(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one-hot sequences (B, GAP + 1, SYMBOLS) and their first symbols (B,)."""
    ids = torch.randint(SYMBOLS, (rows, GAP + 1), generator=draw)
    return F.one_hot(ids, SYMBOLS).float(), ids[:, 0]
