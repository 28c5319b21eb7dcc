"""C66: A recurrent network loses an early word with distance until the word that decides on its meaning; attention does not.

中文：歧义词与决定其含义的词相距越远，循环网络中存储的信息越被稀释；注意力则不会。
Seed: 003_d30a3ba1164faeec.txt:193
Budget: minutes
Expected: a noun with two senses, 1 to 16 other words, and a place that decides on the sense: where all words are translated from one fixed vector, the noun's translation falls with distance, and with attention it does not; where only the noun is asked for, a recurrent network need not store the words between, and keeps it
预期：一个有两种含义的名词，1 到 16 个其他词，再加一个决定含义的地点词：全句都由一个固定向量译出时，名词译对的比例随距离下降，用注意力则不下降；若只问该名词，循环网络不必存储中间的词，能一直记住它
Rule: with the fall of the noun's accuracy from the shortest to the longest distance, a GRU's fixed vector minus attention with as many parameters: holds if its interval is above 0.05 where all words are translated and where only the noun is; holds if … (all words must be remembered) where it is above 0.05 in the first case and below 0.05 in the second; does not hold if it is below 0.05 in the first, where both models are right in more than half at the shortest distance; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, logits_of, size_of
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

NOUNS, PLACES, FILLERS = 8, 16, 40  # a place decides for the first sense of a noun, or for the second
SENSES = 2 * NOUNS
FIRST_PLACE, FIRST_FILLER = SENSES, SENSES + PLACES  # numbers of both languages; the first are nouns or their senses
WORDS = SENSES + PLACES + FILLERS
BEGIN = WORDS
LEARNED = 0.5  # of the answers right: below it nothing is refuted
DISTANCES, ROWS = (1, 4, 16), 500
MODELS: Mapping[str, tuple[str, int]] = {"fixed vector": ("cho", 54), "attention": ("luong", 64)}
TASKS: Mapping[str, int | None] = {"all words": None, "the noun": 1}  # how many words of the target are trained on
Cell = list[tuple[list[float], float]]


def run(budget: Budget) -> Result:
    updates = 4 if budget.is_small else 500
    seeds = range(budget.seeds)
    cells = {(task, name): [_measure(task, name, seed, updates) for seed in seeds] for task in TASKS for name in MODELS}
    gaps = {task: _gaps(cells[task, "fixed vector"], cells[task, "attention"]) for task in TASKS}
    every, alone = (interval(values) for values in gaps.values())
    guessed = statistics.fmean(other for rows in cells.values() for _, other in rows)
    mean = {
        cell: [statistics.fmean(c) for c in zip(*(own for own, _ in rows), strict=True)] for cell, rows in cells.items()
    }
    shown = {cell: ", ".join(f"{share:.0%}" for share in shares) for cell, shares in mean.items()}
    sizes = [size_of(_model(name)) for name in MODELS]
    words = Bilingual(
        f"Noun right at {', '.join(map(str, DISTANCES))} words between: all words translated from a fixed vector {shown['all words', 'fixed vector']} "
        f"({sizes[0]:,} parameters), with attention {shown['all words', 'attention']} ({sizes[1]:,}), a fall of {statistics.fmean(gaps['all words']):.2f} "
        f"[{every[0]:.2f}, {every[1]:.2f}] more; only the noun asked for {shown['the noun', 'fixed vector']} and {shown['the noun', 'attention']}, "
        f"{statistics.fmean(gaps['the noun']):.2f} [{alone[0]:.2f}, {alone[1]:.2f}] more.",
        f"相隔 {'、'.join(map(str, DISTANCES))} 个词时名词的正确率：全句由固定向量译出 {shown['all words', 'fixed vector']}（参数量 {sizes[0]:,}），用注意力 "
        f"{shown['all words', 'attention']}（{sizes[1]:,}），前者多下降 {statistics.fmean(gaps['all words']):.2f} [{every[0]:.2f}, {every[1]:.2f}]；"
        f"只问名词时为 {shown['the noun', 'fixed vector']} 与 {shown['the noun', 'attention']}，多下降 {statistics.fmean(gaps['the noun']):.2f} "
        f"[{alone[0]:.2f}, {alone[1]:.2f}]。",
    )
    chart = Chart(
        Bilingual("The translation of a noun, by the distance of what decides on it", "按相隔词数，名词译文的正确率"),
        Bilingual("words between", "相隔的词数"),
        Bilingual("right", "正确率"),
        [
            Curve(f"{name}, {task}", list(zip(map(float, DISTANCES), shares, strict=True)))
            for (task, name), shares in mean.items()
        ],
        log_x=True,
    )
    return Result(
        verdict_of(every, alone, min(mean["all words", name][0] for name in MODELS)),
        words,
        statistics.fmean(gaps["all words"]),
        every,
        Control(Bilingual("chance", "随机"), 1 / SENSES),
        Check(
            Bilingual("with another row's source it is at chance", "换成别的行的源序列时处于随机水平"),
            abs(guessed - 1 / SENSES) < 0.03,
        ),
        condition=Bilingual("all words must be remembered", "必须记住所有的词"),
        chart=chart,
    )


def verdict_of(every: tuple[float, float], alone: tuple[float, float], learned: float) -> Verdict:
    """Return the verdict of the fall beyond attention's, for all words and for the noun alone, and of accuracy up close."""
    if every[0] > 0.05:
        return "holds" if alone[0] > 0.05 else "holds if" if alone[1] < 0.05 else "not shown"
    return "does not hold" if every[1] < 0.05 and learned > LEARNED else "not shown"


def _gaps(fixed: Cell, attention: Cell) -> list[float]:
    """Return, for each seed, the fall of the fixed vector minus that of attention."""
    return [one[0] - one[-1] - (other[0] - other[-1]) for (one, _), (other, _) in zip(fixed, attention, strict=True)]


def _model(name: str) -> Translator:
    family, width = MODELS[name]
    feeding = {"input_feeding": False, "score": "dot"} if family == "luong" else {}
    return Translator(family, WORDS, WORDS + 1, width=width, cell="gru", **feeding)


def _measure(task: str, name: str, seed: int, updates: int) -> tuple[list[float], float]:
    """Return the share of new nouns right at each distance, and that with other rows' sources."""
    torch.manual_seed(seed)
    model = _model(name)

    def loss() -> Tensor:
        source, target = _draw(32, DISTANCES[int(torch.randint(len(DISTANCES), ()))])
        target = target[:, : TASKS[task]]
        return F.cross_entropy(logits_of(model, source, target, BEGIN).flatten(0, 1), target.flatten())

    fit(model, loss, updates, rate=0.01, enough=0.02)
    own: list[float] = []
    other: list[float] = []
    with torch.no_grad():
        for source, target in [_draw(ROWS, distance) for distance in DISTANCES]:
            said = logits_of(model, source, target[:, :1], BEGIN).argmax(2)
            own.append(float((said == target[:, :1]).float().mean()))
            other.append(float((said.roll(1, 0) == target[:, :1]).float().mean()))
    return own, statistics.fmean(other)


def _draw(rows: int, distance: int) -> tuple[Tensor, Tensor]:
    """Return sources (B, distance + 2), a noun, other words and a place, and targets: its sense, and the same words."""
    noun, place = torch.randint(NOUNS, (rows, 1)), torch.randint(PLACES, (rows, 1))
    between = FIRST_FILLER + torch.rand(rows, FILLERS).argsort(1)[:, :distance]
    rest = torch.cat([between, FIRST_PLACE + place], 1)
    return torch.cat([noun, rest], 1), torch.cat([2 * noun + place % 2, rest], 1)
