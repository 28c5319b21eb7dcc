"""C45: With one context vector every input influences every output equally.

中文：只有一个上下文向量时，每个输入对每个输出的影响相同。
Seed: 003_d30a3ba1164faeec.txt:189
Budget: seconds
Expected: in a fixed-vector model that learned to copy, the influences ∂y_i/∂x_j differ between inputs and between outputs
预期: 学会复制的固定向量模型中，影响 ∂y_i/∂x_j 在输入之间、输出之间都不同
Rule: of models that copy at least half of the symbols: does not hold if the interval of the smaller of the two mean coefficients of variation is above 0.2; holds if it is below 0.05; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH, BEGIN = 12, 6, 0
ROWS, LEARNED = 300, 0.5


def run(budget: Budget) -> Result:
    measured = [_measure(seed, 20 if budget.is_small else 300) for seed in range(budget.seeds)]
    found = [pair for pair, _, _ in measured]
    right, other = statistics.fmean(one[1] for one in measured), statistics.fmean(one[2] for one in measured)
    least = [min(pair) for pair in found]
    low, high = interval(least)
    by_input, by_output = (statistics.fmean(column) for column in zip(*found, strict=True))
    words = Bilingual(
        f"Where {right:.0%} of new symbols are copied, ∂y_i/∂x_j varies by {by_input:.2f} of its mean between inputs and {by_output:.2f} between outputs.",
        f"新序列中 {right:.0%} 的符号复制正确时，∂y_i/∂x_j 在不同输入之间的变化为均值的 {by_input:.2f} 倍，在不同输出之间为 {by_output:.2f} 倍。",
    )
    check = Check(
        Bilingual("with another row's source few symbols are copied", "换成别的行的源序列时很少复制正确"),
        other < 0.3,
    )
    return Result(
        verdict_of(right, (low, high)),
        words,
        statistics.fmean(least),
        (low, high),
        Control(Bilingual("equal influence", "影响相等"), 0.0),
        check,
    )


def verdict_of(right: float, least: tuple[float, float]) -> Verdict:
    """Return the verdict of the share that is copied, and of the interval of the smaller coefficient of variation."""
    if right < LEARNED:
        return "not shown"
    return "does not hold" if least[0] > 0.2 else "holds" if least[1] < 0.05 else "not shown"


def _measure(seed: int, updates: int) -> tuple[tuple[float, float], float, float]:
    """Train a model to copy; return the variations of its influences, between inputs and between outputs.

    Then the share of new symbols that it copies, and that with other rows' sources.
    """
    torch.manual_seed(seed)
    model = Translator("cho", SYMBOLS, SYMBOLS, width=32)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(updates):
        source, given = _draw(32)
        logits, _ = model(given, model.remember(source))
        loss = F.cross_entropy(logits.flatten(0, 1), source.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    influences = torch.stack([_influence(model) for _ in range(8)])  # (N, T, S)
    by_input = (influences.std(2) / influences.mean(2)).mean()
    by_output = (influences.std(1) / influences.mean(1)).mean()
    source, given = _draw(ROWS)
    with torch.no_grad():
        own, other = (model(given, model.remember(one))[0].argmax(2) == source for one in (source, source.roll(1, 0)))
    return (float(by_input), float(by_output)), float(own.float().mean()), float(other.float().mean())


def _draw(rows: int) -> tuple[Tensor, Tensor]:
    """Return sources of distinct symbols, and the decoder's inputs to copy them."""
    source = torch.stack([torch.randperm(SYMBOLS - 1)[:LENGTH] + 1 for _ in range(rows)])
    return source, torch.cat([torch.full((rows, 1), BEGIN), source[:, :-1]], 1)


def _influence(model: Translator) -> Tensor:
    """Return the norm of the slope of each output (T,) with respect to each source symbol's vector (S,)."""
    source, given = _draw(1)
    table = next(p for name, p in model.encoder.named_parameters() if "embedding" in name)
    logits, _ = model(given, model.remember(source))
    rows = []
    for t in range(LENGTH):
        (slope,) = torch.autograd.grad(logits[0, t, source[0, t]], table, retain_graph=True)
        rows.append(slope[source[0]].norm(dim=1))  # distinct symbols: each has a row of the table
    return torch.stack(rows)
