"""C27: RNNs are hard to train because information has a single path, with many non-linear activations on it.

中文：RNN 难以训练，是因为信息通路只有一条，且其上有多次非线性激活。
Seed: 000_56d5b8bda4e4cf77.txt:134
Budget: minutes
Expected: over 50 steps a plain RNN does not recall, and does where a second path of 2 activations leads past the others; yet without any tanh it fails too, and with 50 tanh on its only path it succeeds from an orthogonal start: what counts is how the path contracts
预期：隔 50 步时普通 RNN 无法回忆，另加一条只经过 2 次激活的通路即可；但完全去掉 tanh 同样失败，而唯一通路上有 50 次 tanh、从正交初始化出发也能成功：关键在于通路的收缩程度
Rule: with recall over 50 steps: does not hold if the interval of the second path minus the single one is below 0.5; holds if it is above 0.5, and so is that of a path without tanh minus the usual one; holds if … (the path contracts) if that is below 0.5, and the interval of an orthogonal start with 50 tanh minus the usual one above 0.5; else not shown
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.gaps import BATCH, CHANCE, CUES, ROWS, SYMBOLS, WIDTH, draw
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

STEPS, HIDDEN, RAISED = 50, 32, 0.5


@dataclass(frozen=True)
class Path:
    """How information gets from one step to the next."""

    skip: int = 0  # the state so many steps ago is read too
    linear: bool = False  # no tanh
    orthogonal: bool = False  # the start of W_hh, with small input weights

    @property
    def activations(self) -> int:
        """The fewest activations on the path from the cue's state to the query's."""
        return 0 if self.linear else STEPS // (self.skip or 1)


PATHS = {
    "usual": Path(),
    "second path": Path(skip=25),
    "without tanh": Path(linear=True),
    "orthogonal start": Path(orthogonal=True),
}


IN_CHINESE = {
    "usual": "通常的通路",
    "second path": "另有第二条通路",
    "without tanh": "去掉 tanh",
    "orthogonal start": "正交初始化",
}


class PathRNN(nn.Module):
    """h_t = φ(W_xh x_t + W_hh h_{t-1} + S h_{t-s} + b), with φ = tanh or the identity; logits of the cue at the end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.table, self.cell, self.head = nn.Embedding(SYMBOLS, WIDTH), RNN(WIDTH, HIDDEN), nn.Linear(HIDDEN, CUES)
        self.skipping = nn.Linear(HIDDEN, HIDDEN, bias=False) if path.skip else None
        if path.orthogonal:
            nn.init.orthogonal_(self.cell.weight_hh)
            with torch.no_grad():
                self.cell.weight_ih.mul_(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (B, CUES) after the last symbol."""
        assert self.cell.bias_ih is not None
        assert self.cell.bias_hh is not None
        bias = self.cell.bias_ih + self.cell.bias_hh
        from_x = F.linear(self.table(ids), self.cell.weight_ih, bias)  # (B, T, H)
        states = [torch.zeros_like(from_x[:, 0])]
        for t, one in enumerate(from_x.unbind(1)):
            total = torch.addmm(one, states[-1], self.cell.weight_hh.T)
            if self.skipping is not None and t >= self.path.skip:
                total = total + self.skipping(states[t - self.path.skip + 1])
            states.append(total if self.path.linear else total.tanh())
        return self.head(states[-1])


def run(budget: Budget) -> Result:
    updates = 2 if budget.is_small else 400
    found = {name: [_recall(path, seed, updates) for seed in range(budget.seeds)] for name, path in PATHS.items()}
    right = {name: [own for own, _ in one] for name, one in found.items()}
    gains = {name: [a - b for a, b in zip(one, right["usual"], strict=True)] for name, one in right.items()}
    intervals = {name: interval(one) for name, one in gains.items()}
    others = statistics.fmean(other for one in found.values() for _, other in one)
    mean = {name: statistics.fmean(one) for name, one in right.items()}
    figures = ", ".join(f"{name} ({PATHS[name].activations} tanh) {share:.0%}" for name, share in mean.items())
    chinese = "，".join(
        f"{IN_CHINESE[name]}（{PATHS[name].activations} 次 tanh）{share:.0%}" for name, share in mean.items()
    )
    low, high = intervals["second path"]
    return Result(
        verdict_of(intervals["second path"], intervals["without tanh"], intervals["orthogonal start"]),
        Bilingual(
            f"Recall over {STEPS} steps after {updates} updates: {figures}; chance {CHANCE:.0%}. A second path gains {statistics.fmean(gains['second path']):.2f} [{low:.2f}, {high:.2f}].",
            f"{updates} 次更新后隔 {STEPS} 步的回忆：{chinese}；随机 {CHANCE:.0%}。第二条通路提高 {statistics.fmean(gains['second path']):.2f} [{low:.2f}, {high:.2f}]。",
        ),
        statistics.fmean(gains["second path"]),
        (low, high),
        Control(Bilingual("recall by chance", "随机回忆"), CHANCE),
        Check(
            Bilingual("the cues of other sequences are at chance", "换成别的序列的提示时处于随机水平"),
            abs(others - CHANCE) < 0.03,
        ),
        Bilingual("the path contracts, with a tanh or without", "通路是收缩的，无论有无 tanh"),
        rows=[{"path": name, "tanh": PATHS[name].activations, "recall": one} for name, one in right.items()],
    )


def verdict_of(second: tuple[float, float], linear: tuple[float, float], orthogonal: tuple[float, float]) -> Verdict:
    """Return the verdict of what a second path, one without tanh, and an orthogonal start gain over the usual path."""
    if second[1] < RAISED:
        return "does not hold"
    if second[0] <= RAISED:
        return "not shown"
    if linear[0] > RAISED:
        return "holds"
    return "holds if" if linear[1] < RAISED < orthogonal[0] else "not shown"


def _recall(path: Path, seed: int, updates: int) -> tuple[float, float]:
    """Train over `STEPS` steps; return the shares of new sequences whose cue is recalled, and of other cues."""
    torch.manual_seed(seed)
    model = PathRNN(path)

    def loss() -> Tensor:
        ids, cues = draw(STEPS - 1, BATCH)
        return F.cross_entropy(model(ids), cues)

    fit(model, loss, updates, enough=0.02)
    ids, cues = draw(STEPS - 1, ROWS)
    with torch.no_grad():
        said = model(ids).argmax(1)
    return float((said == cues).float().mean()), float((said == cues.roll(1)).float().mean())
