"""C40: An encoder–decoder processes inputs and outputs that both vary in length.

中文：编码器–解码器能处理输入输出都是变长序列的任务。
Seed: 000_56d5b8bda4e4cf77.txt:54, 003_d30a3ba1164faeec.txt:167
Budget: seconds
Expected: English words of numbers, one to seven, to one to four digits: at least 90 % of unseen numbers right; numbers of five digits, longer than any that was trained on, fail
预期：把一到七个英语数词译成一到四位数字，未见过的数至少 90% 正确；比训练中都长的五位数则失败
Rule: holds if the interval of unseen numbers right is above 0.9, and that of longer ones too; holds if … (lengths as in training) where only the former; does not hold if the former is below 0.5; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.padding import pad
from recollect.data.synthetic.pair_generators import numbers
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

MOST, LONGER = 9_999, 99_999
END, BEGIN = 10, 11  # after the ten digits
COUNT, HELD_OUT = 4_000, 400
Rows = Sequence[tuple[list[int], list[int]]]


def run(budget: Budget) -> Result:
    vocabulary: dict[str, int] = {}
    rows = [_encode(*pair, vocabulary) for pair in numbers(MOST, count=COUNT, seed=1)]
    trained, unseen = rows[HELD_OUT:], rows[:HELD_OUT]
    longer = [
        _encode(*pair, vocabulary) for pair in numbers(LONGER, count=2_000, seed=2) if len(pair[1]) > len(str(MOST))
    ]
    updates = 5 if budget.is_small else 450
    models = [_trained(trained, len(vocabulary), seed, updates) for seed in range(min(budget.seeds, 3))]
    seen, beyond = ([_right(model, part) for model in models] for part in (unseen, longer[:HELD_OUT]))
    shuffled = statistics.fmean(_right(model, _with_other_sources(unseen)) for model in models)
    low, high = interval(seen)
    found = Bilingual(
        f"Unseen numbers of up to four digits, one to seven words: {statistics.fmean(seen):.1%} right; of five digits, which were never trained on: "
        f"{statistics.fmean(beyond):.1%}.",
        f"未见过的一到四位数（一到七个词）正确 {statistics.fmean(seen):.1%}；从未训练过的五位数正确 {statistics.fmean(beyond):.1%}。",
    )
    sources = {tuple(source) for source, _ in trained}
    return Result(
        verdict_of(low, high, interval(beyond)[0]),
        found,
        statistics.fmean(seen),
        (low, high),
        Control(Bilingual("with another number's words", "换成别的数的词"), shuffled),
        Check(
            Bilingual("no test number is in the training part", "测试用的数不在训练部分中"),
            not any(tuple(source) in sources for source, _ in unseen),
        ),
        condition=Bilingual("the lengths are like those of training", "长度与训练时相近"),
    )


def verdict_of(low: float, high: float, longer: float) -> Verdict:
    """Return the verdict of the interval of unseen numbers right, and of the lower end for longer ones."""
    if low > 0.9:
        return "holds" if longer > 0.9 else "holds if"
    return "does not hold" if high < 0.5 else "not shown"


def _encode(words: str, digits: str, vocabulary: dict[str, int]) -> tuple[list[int], list[int]]:
    """Return the ids of the words, new ones being added to the vocabulary, and of the digits with an end."""
    source = [vocabulary.setdefault(word, len(vocabulary)) for word in words.replace("-", " ").split()]
    return source, [*map(int, digits), END]


def _trained(rows: Rows, words: int, seed: int, updates: int) -> Translator:
    torch.manual_seed(seed)
    model = Translator("sutskever", words, BEGIN + 1, width=64, cell="gru")
    drawn = Random(seed)
    fit(model, lambda: _loss(model, drawn.choices(rows, k=64)), updates, rate=0.01)
    return model


def _logits(model: Translator, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (B, T, V), targets (B, T) and which of them are real."""
    source, source_valid = pad([source for source, _ in rows])
    target, valid = pad([target for _, target in rows])
    given = F.pad(target[:, :-1], (1, 0), value=BEGIN)
    return model(given, model.remember(source, source_valid))[0], target, valid


def _loss(model: Translator, rows: Rows) -> Tensor:
    logits, target, valid = _logits(model, rows)
    return F.cross_entropy(logits[valid], target[valid])


@torch.no_grad()
def _right(model: Translator, rows: Rows) -> float:
    """Return the share of targets that are right throughout: exactly those that greedy generation emits."""
    logits, target, valid = _logits(model, rows)
    return float(((logits.argmax(2) == target) | ~valid).all(1).float().mean())


def _with_other_sources(rows: Rows) -> Rows:
    return [(other, target) for (other, _), (_, target) in zip(rows[1:], rows, strict=False)]
