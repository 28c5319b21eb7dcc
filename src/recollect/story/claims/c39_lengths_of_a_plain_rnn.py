"""C39: A plain RNN maps sequences of equal lengths only; or: only 1 to N, N to 1 and N to N.

中文：普通 RNN 只能处理输入输出等长的任务；又说：只能实现 1 到 N、N 到 1、N 到 N。
Seed: 000_56d5b8bda4e4cf77.txt:54, 003_d30a3ba1164faeec.txt:167
Budget: seconds
Expected: one LSTM that reads a source, a separator and its own output emits targets twice or half as long, right in at least 90 %, as an encoder–decoder of as many parameters does
预期：一个 LSTM 依次读入源序列、分隔符与自己的输出，就能生成长一倍或短一半的目标，正确率至少 90%，与参数量相同的编码器–解码器相当
Rule: does not hold if the interval of whole targets right, with one LSTM, is above 0.9; holds if it is below 0.5; else not shown
"""

from __future__ import annotations

import statistics
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.language import LanguageModel
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import Pairs, fit, hits, size_of, teach
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS = 6
SEPARATOR, DOUBLE, HALVE, END = 0, SYMBOLS + 1, SYMBOLS + 2, SYMBOLS + 3
VOCABULARY = SYMBOLS + 4
LENGTHS = (2, 3)
SHAPES = [(mode, length) for mode in (DOUBLE, HALVE) for length in LENGTHS]
WIDTH_OF_ONE, WIDTH_OF_TWO = 64, 44  # about as many parameters
ROWS, RATE = 300, 0.01


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 400
    measured = [_shares(seed, updates) for seed in range(min(budget.seeds, 3))]
    one, shuffled, two = ([found[place] for found in measured] for place in range(3))
    low, high = interval(one)
    mean, other = statistics.fmean(one), statistics.fmean(two)
    sizes = size_of(_one()), size_of(_two())
    found = Bilingual(
        f"2 or 3 symbols to 1, 2, 4 or 6: one LSTM emits {mean:.1%} of the targets without a mistake, an encoder–decoder {other:.1%} ({sizes[0]:,} and "
        f"{sizes[1]:,} parameters).",
        f"由 2 或 3 个符号生成 1、2、4 或 6 个：一个 LSTM 的目标有 {mean:.1%} 完全正确，编码器–解码器 {other:.1%}（参数量 {sizes[0]:,} 与 {sizes[1]:,}）。",
    )
    worst = statistics.fmean(shuffled)
    return Result(
        verdict_of(low, high),
        found,
        mean,
        (low, high),
        Control(Bilingual("with another row's source", "换成别的行的源序列"), worst),
        Check(
            Bilingual("with another row's source few targets are right", "换成别的行的源序列时很少正确"), worst < 0.1
        ),
    )


def verdict_of(low: float, high: float) -> Verdict:
    """Return the verdict of the interval of whole targets that are right."""
    return "does not hold" if low > 0.9 else "holds" if high < 0.5 else "not shown"


def _one() -> LanguageModel:
    return LanguageModel("lstm", VOCABULARY, width=WIDTH_OF_ONE, layers=1)


def _two() -> Translator:
    return Translator("sutskever", VOCABULARY, VOCABULARY, width=WIDTH_OF_TWO)


def _shares(seed: int, updates: int) -> tuple[float, float, float]:
    """Return shares of whole targets right: of one LSTM, of it with other rows' sources, of an encoder–decoder."""
    torch.manual_seed(seed)
    pick = Random(seed)
    one, two = _one(), _two()
    fit(one, lambda: _loss(one, *_draw(64, *pick.choice(SHAPES))), updates, RATE)
    teach(two, lambda: _draw(64, *pick.choice(SHAPES)), updates, SEPARATOR, RATE)
    tests = [_draw(ROWS, *shape) for shape in SHAPES]
    return (
        statistics.fmean(_whole(_said(one, *pair) == pair[1]) for pair in tests),
        statistics.fmean(_whole(_said(one, source.roll(1, 0), target) == target) for source, target in tests),
        statistics.fmean(_whole(hits(two, *pair, SEPARATOR)) for pair in tests),
    )


def _draw(rows: int, mode: int, length: int) -> Pairs:
    """Return sources (B, 1 + length), the first symbol being what is asked for, and targets with an end."""
    symbols = 1 + torch.randint(SYMBOLS, (rows, length))
    source = torch.cat([torch.full((rows, 1), mode), symbols], 1)
    back = symbols.flip(1)
    target = back.repeat_interleave(2, 1) if mode == DOUBLE else back[:, ::2]
    return source, F.pad(target, (0, 1), value=END)


def _logits(model: LanguageModel, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits (B, T, V) of the target's symbols, read after source and separator."""
    given = torch.cat([F.pad(source, (0, 1), value=SEPARATOR), target[:, :-1]], 1)
    return model(given)[0][:, -target.shape[1] :]


def _loss(model: LanguageModel, source: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(_logits(model, source, target).flatten(0, 1), target.flatten())


@torch.no_grad()
def _said(model: LanguageModel, source: Tensor, target: Tensor) -> Tensor:
    return _logits(model, source, target).argmax(2)


def _whole(right: Tensor) -> float:
    """Return the share of rows that are right throughout: exactly those that greedy generation emits."""
    return float(right.all(1).float().mean())
