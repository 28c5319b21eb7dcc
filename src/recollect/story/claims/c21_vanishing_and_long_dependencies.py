"""C21: Because gradients vanish an RNN cannot learn long dependencies.

中文：由于梯度消失，RNN 无法处理长期依赖关系。
Seed: 000_56d5b8bda4e4cf77.txt:36, 000_56d5b8bda4e4cf77.txt:136
Budget: minutes
Expected: over cells, starts and gaps, recall after training follows the gradient of the loss at the cue before training (rank correlation above 0.5); a plain RNN that starts with an orthogonal W_hh and small input weights has a larger gradient and recalls over 50 steps
预期：在各种单元、初始化与间隔上，训练后的回忆与训练前损失对提示的梯度一致（秩相关高于 0.5）；以正交 W_hh 与较小输入权重开始的普通 RNN 梯度更大，能隔 50 步回忆
Rule: with the rank correlation of gradient and recall: does not hold if its interval is below 0.5; holds if it is above 0.5 and the orthogonal start does not raise recall over 50 steps; holds if … (the weights start as usual) if it does so by more than 0.5 (interval); else not shown
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.gaps import CHANCE, WIDTH, accuracies, draw, reader, trained
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

GAPS, ROWS = (5, 20, 50), 64
FOLLOWS, RAISED, SAME = 0.5, 0.5, 0.1
ENOUGH = 0.02  # nats: the training ends early


def _orthogonal() -> AnyLayer:
    """Return a plain RNN that starts with an orthogonal W_hh, and with a tenth of the usual input weights."""
    layer = RNN(WIDTH, 56)
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight_hh)
        layer.weight_ih.mul_(0.1)
    return layer


USUAL, CURED = "rnn", "rnn, orthogonal, small inputs"
CELLS: dict[str, Callable[[], AnyLayer]] = {
    USUAL: lambda: RNN(WIDTH, 56),
    CURED: _orthogonal,
    "lstm": lambda: LSTM(WIDTH, 25),
    "lstm, forget bias 5": lambda: LSTM(WIDTH, 25, forget_bias=5.0),
}
Point = tuple[float, float, float]  # the gradient before training; recall after it, its own and with other cues


def run(budget: Budget) -> Result:
    updates = 2 if budget.is_small else 400
    found = [
        {(name, gap): _point(make, gap, seed, updates) for name, make in CELLS.items() for gap in GAPS}
        for seed in range(budget.seeds)
    ]
    slopes = [[slope for slope, _, _ in one.values()] for one in found]
    rights = [[right for _, right, _ in one.values()] for one in found]
    ranks = [rank_correlation(*pair) for pair in zip(slopes, rights, strict=True)]
    gains = [one[CURED, GAPS[-1]][1] - one[USUAL, GAPS[-1]][1] for one in found]
    low, high = interval(ranks)
    others = statistics.fmean(other for one in found for _, _, other in one.values())
    mean = {key: [statistics.fmean(one[key][place] for one in found) for place in (0, 1)] for key in found[0]}
    figures = "; ".join(f"{name} {mean[name, GAPS[-1]][0]:.0e} and {mean[name, GAPS[-1]][1]:.0%}" for name in CELLS)
    chinese = "；".join(f"{name}：{mean[name, GAPS[-1]][0]:.0e}，{mean[name, GAPS[-1]][1]:.0%}" for name in CELLS)
    return Result(
        verdict_of((low, high), interval(gains)),
        Bilingual(
            f"Gradient at the cue before training and recall after it, over {GAPS[-1]} steps: {figures}. Rank correlation over cells and gaps {statistics.fmean(ranks):.2f} [{low:.2f}, {high:.2f}].",
            f"隔 {GAPS[-1]} 步，训练前提示处的梯度与训练后的回忆：{chinese}。对单元与间隔的秩相关 {statistics.fmean(ranks):.2f} [{low:.2f}, {high:.2f}]。",
        ),
        statistics.fmean(ranks),
        (low, min(high, 1.0)),
        Control(Bilingual("rank correlation with the gaps shuffled", "打乱间隔后的秩相关"), _shuffled(slopes, rights)),
        Check(
            Bilingual("the cues of other sequences are at chance", "换成别的序列的提示时处于随机水平"),
            abs(others - CHANCE) < 0.03,
        ),
        Bilingual("the weights start as usual", "权重按通常方式初始化"),
        Chart(
            Bilingual("Recall after training, by the gradient before it", "训练后的回忆与训练前的梯度"),
            Bilingual("gradient at the cue", "提示处的梯度"),
            Bilingual("recall", "回忆"),
            [Curve(name, sorted((mean[name, gap][0], mean[name, gap][1]) for gap in GAPS)) for name in CELLS],
            log_x=True,
        ),
        [
            {"layer": name, "gap": gap, "gradient": slope, "recall": right}
            for (name, gap), (slope, right) in mean.items()
        ],
    )


def verdict_of(rank: tuple[float, float], gain: tuple[float, float]) -> Verdict:
    """Return the verdict of the rank correlation, and of what an orthogonal start gains at the longest gap."""
    if rank[1] < FOLLOWS:
        return "does not hold"
    if rank[0] <= FOLLOWS:
        return "not shown"
    if gain[0] > RAISED:
        return "holds if"
    return "holds" if gain[1] < SAME else "not shown"


def _point(make: Callable[[], AnyLayer], gap: int, seed: int, updates: int) -> Point:
    torch.manual_seed(seed)
    slope = _gradient(reader(make()), gap)
    return slope, *accuracies(trained(make, gap, gap, seed, updates, enough=ENOUGH), gap)


def _gradient(model: Stack, gap: int) -> float:
    """Return the norm of ∂loss / ∂x of the cue, the mean over rows, never below what a float32 holds."""
    ids, cues = draw(gap, ROWS)
    table, cell, head = model.layers
    x = table(ids)[0].detach().requires_grad_()  # (B, T, D)
    loss = F.cross_entropy(head(cell(x)[0])[0][:, -1], cues, reduction="sum")
    (slope,) = torch.autograd.grad(loss, x)
    return max(float(slope[:, 0].norm(dim=1).mean()), 1e-38)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties sharing the mean of their ranks; 0 where all are equal."""
    if len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0
    return statistics.correlation(_ranks(x), _ranks(y))


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]


def _shuffled(slopes: Sequence[Sequence[float]], rights: Sequence[Sequence[float]]) -> float:
    """Return the mean rank correlation where each gradient stands beside the recall of another point."""
    chance, ranks = random.Random(0), []
    for some, others in zip(slopes, rights, strict=True):
        ranks += [rank_correlation(some, chance.sample(others, len(others))) for _ in range(20)]
    return statistics.fmean(ranks)
