"""C46: A trained encoder–decoder can generate an output, or score a given pair of input and output.

中文：训练好的编码器–解码器可以生成输出，也可以为给定的输入输出对打分。
Seed: 003_d30a3ba1164faeec.txt:169
Budget: seconds
Expected: the score log p(y | x) is the sum of the log-probabilities of generation to 1e-9; the true pair is above a corrupted one in at least 95 %
预期：打分 log p(y | x) 等于生成时各步对数概率之和，误差 1e-9；真实的一对高于被破坏的一对，至少 95%
Rule: holds if the two agree to 1e-9 and the interval of true pairs above corrupted ones is above 0.95; does not hold if they disagree or the interval is below 0.95; else not shown
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

from recollect.evaluation.phrase_score import score_pairs
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import Pairs, teach
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH = 10, 5
BEGIN, END = 0, SYMBOLS + 1
ROWS = 300


def run(budget: Budget) -> Result:
    measured = [_measure(seed, 5 if budget.is_small else 200) for seed in range(min(budget.seeds, 3))]
    errors, shares, untrained, others = zip(*measured, strict=True)
    low, high = interval(shares)
    error = max(errors)
    found = Bilingual(
        f"Score and generation differ by {error:.0e}; the true pair is above the corrupted one in {statistics.fmean(shares):.1%} (two symbols of the target "
        f"exchanged; untrained {statistics.fmean(untrained):.0%}).",
        f"打分与生成相差 {error:.0e}；真实的一对高于被破坏的一对，占 {statistics.fmean(shares):.1%}（交换目标中的两个符号；未训练时 {statistics.fmean(untrained):.0%}）。",
    )
    return Result(
        verdict_of(error, low, high),
        found,
        statistics.fmean(shares),
        (low, high),
        Control(Bilingual("untrained", "未训练"), statistics.fmean(untrained)),
        Check(
            Bilingual(
                "with another row's source neither of the two is preferred", "换成别的行的源序列时不偏向任何一方"
            ),
            abs(statistics.fmean(others) - 0.5) < 0.1,
        ),
    )


def verdict_of(error: float, low: float, high: float) -> Verdict:
    """Return the verdict of the disagreement and of the interval of true pairs above corrupted ones."""
    if error > 1e-9 or high < 0.95:
        return "does not hold"
    return "holds" if low > 0.95 else "not shown"


def _measure(seed: int, updates: int) -> tuple[float, float, float, float]:
    """Return the disagreement, and the shares of true pairs on top: trained, untrained, with other rows' sources."""
    torch.manual_seed(seed)
    model = Translator("cho", SYMBOLS + 2, SYMBOLS + 2, width=48)
    source, target = _draw(ROWS)
    untrained = _ranked(model.double(), source, target)
    teach(model.float(), lambda: _draw(64), updates, BEGIN)
    model.double()
    other = _ranked(model, source.roll(1, 0), target)
    return _disagreement(model, source), _ranked(model, source, target), untrained, other


def _draw(rows: int) -> Pairs:
    """Return sources of distinct symbols, and their reversal with an end."""
    source = 1 + torch.stack([torch.randperm(SYMBOLS)[:LENGTH] for _ in range(rows)])
    return source, torch.cat([source.flip(1), torch.full((rows, 1), END)], 1)


def _disagreement(model: Translator, source: Tensor) -> float:
    """Return the largest difference between the score of what was generated and its log-probability."""
    settings = Settings(tokens=3 * LENGTH, begin=BEGIN, stop=[END])
    found = generate(model, [[]] * len(source), settings, model.remember(source))
    ended = [row for row, one in enumerate(found) if one.ids[-1] == END]
    scores = score_pairs(model, source[ended].tolist(), [found[row].ids[:-1] for row in ended], BEGIN, END)
    return max(abs(score - sum(found[row].logprobs)) for score, row in zip(scores, ended, strict=True))


def _ranked(model: Translator, source: Tensor, target: Tensor) -> float:
    """Return the share of pairs whose score is above that with two neighbouring symbols exchanged."""
    corrupted = target.clone()
    corrupted[:, [1, 2]] = target[:, [2, 1]]
    scores = [score_pairs(model, source.tolist(), ids[:, :-1].tolist(), BEGIN, END) for ids in (target, corrupted)]
    return statistics.fmean(true > false for true, false in zip(*scores, strict=True))
