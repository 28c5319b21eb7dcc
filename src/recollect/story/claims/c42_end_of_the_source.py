"""C42: The fixed vector c knows more of the end of the source than of its beginning.

中文：固定向量 c 包含的信息中，源序列末尾的更多，开头的更少。
Seed: 000_56d5b8bda4e4cf77.txt:93
Budget: seconds
Expected: where every symbol is needed alike, what can be read from c rises towards the end; it falls where the source is read backwards, and is least in the middle where it is read both ways. A translator's c keeps the first words, which it must emit first
预期：每个符号同等重要时，能从 c 读出的信息向末尾递增；反向读取时递减；双向读取时中间最少。翻译模型的 c 则保留须最先生成的前几个词
Rule: with the difference of accuracy, last third minus first third of the source: holds if its interval is above 0.1 reading forwards and below -0.1 reading backwards, and a translator of Multi30k that reads forwards knows less of the first four words than of the last four (interval over its seeds); holds if … (every word is needed alike) where it knows more of the first; does not hold if the interval is below 0.1 where a third is read in more than 0.3; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH, HIDDEN = 8, 18, 32
THIRD = LENGTH // 3
LEARNED = 0.3  # of a third of the symbols read from c: below it nothing is refuted
WAYS = ("forwards", "backwards", "both")


class SourceSummary(nn.Module):
    """c of a source, from its last state read forwards, backwards or both ways, and every symbol from c by a linear map."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.embedding = Embedding(SYMBOLS, HIDDEN)
        self.cells = nn.ModuleList([GRU(HIDDEN, HIDDEN // 2 if way == "both" else HIDDEN) for _ in _orders(way)])
        self.out = nn.Linear(HIDDEN, LENGTH * SYMBOLS)

    def forward(self, source: Tensor) -> Tensor:
        """Return logits (B, S, V) of every source symbol."""
        states = []
        for cell, is_backwards in zip(self.cells, _orders(self.way), strict=True):
            x = self.embedding.map(source)
            states.append(cell(x.flip(1) if is_backwards else x)[0][:, -1])
        return self.out(torch.cat(states, 1)).unflatten(1, (LENGTH, SYMBOLS))


def run(budget: Budget) -> Result:
    translated = _translator()
    if translated is None:
        return not_measured("multi30k")
    updates = 5 if budget.is_small else 150
    measures = {way: [_measure(way, seed, updates) for seed in range(budget.seeds)] for way in WAYS}
    forwards, backwards = ([_rise(profile) for profile, _ in measures[way]] for way in ("forwards", "backwards"))
    shuffled = statistics.fmean(other for pairs in measures.values() for _, other in pairs)
    low, high = interval(forwards)
    first, last = (statistics.fmean(part) for part in translated)
    more = interval([one - other for one, other in zip(*translated, strict=True)])
    mean = {way: torch.stack([profile for profile, _ in pairs]).mean(0) for way, pairs in measures.items()}
    thirds = {way: [float(part.mean()) for part in values.split(THIRD)] for way, values in mean.items()}
    shown = {way: ", ".join(f"{value:.0%}" for value in values) for way, values in thirds.items()}
    found = Bilingual(
        f"Read from c, thirds of {LENGTH} symbols: forwards {shown['forwards']}; backwards {shown['backwards']}; both ways {shown['both']}. In Multi30k "
        f"(benchmarks/results/multi30k.json) a c read forwards gives the first four words {first:.2f} above the usual word, the last four {last:.2f} (difference [{more[0]:.2f}, {more[1]:.2f}]).",
        f"从 c 读出，{LENGTH} 个符号分三段：正向 {shown['forwards']}；反向 {shown['backwards']}；双向 {shown['both']}。Multi30k"
        f"（benchmarks/results/multi30k.json）中，正向读取的 c 对前四个词比猜常用词高 {first:.2f}，对后四个词高 {last:.2f}（差 [{more[0]:.2f}, {more[1]:.2f}]）。",
    )
    chart = Chart(
        Bilingual("What can be read from c", "能从 c 读出的内容"),
        Bilingual("place in the source", "在源序列中的位置"),
        Bilingual("right", "正确率"),
        [Curve(way, [(float(j), float(value)) for j, value in enumerate(values)]) for way, values in mean.items()],
    )
    figures = ((low, high), interval(backwards), more, max(thirds["forwards"]))
    return Result(
        verdict_of(*figures),
        found,
        statistics.fmean(forwards),
        (low, high),
        Control(Bilingual("read backwards", "反向读取"), statistics.fmean(backwards)),
        Check(
            Bilingual("with another row's source it is at chance", "换成别的行的源序列时处于随机水平"),
            abs(shuffled - 1 / SYMBOLS) < 0.02,
        ),
        condition=Bilingual("every word is needed alike", "每个词同等重要"),
        chart=chart,
        figures=figures,
    )


def verdict_of(
    forwards: tuple[float, float], backwards: tuple[float, float], translated: tuple[float, float], learned: float
) -> Verdict:
    """Return the verdict of the rise, of what a translator knows more of the first words, and of what is read at most."""
    if forwards[0] > 0.1 and backwards[1] < -0.1:
        return "holds if" if translated[0] > 0 else "holds" if translated[1] < 0 else "not shown"
    return "does not hold" if forwards[1] < 0.1 and learned > LEARNED else "not shown"


def _orders(way: str) -> tuple[bool, ...]:
    """Return, for each recurrent layer, whether it reads backwards."""
    return {"forwards": (False,), "backwards": (True,), "both": (False, True)}[way]


def _measure(way: str, seed: int, updates: int) -> tuple[Tensor, float]:
    """Return the share of new symbols right at each place (S,), and that with other rows' sources."""
    torch.manual_seed(seed)
    model = SourceSummary(way)
    fit(model, lambda: _loss(model, torch.randint(SYMBOLS, (64, LENGTH))), updates, rate=0.01)
    source = torch.randint(SYMBOLS, (1000, LENGTH))
    with torch.no_grad():
        read = model(source).argmax(2)
    return (read == source).float().mean(0), float((read == source.roll(1, 0)).float().mean())


def _loss(model: SourceSummary, source: Tensor) -> Tensor:
    return F.cross_entropy(model(source).flatten(0, 1), source.flatten())


def _rise(profile: Tensor) -> float:
    return float(profile[-THIRD:].mean() - profile[:THIRD].mean())


def _translator() -> tuple[list[float], list[float]] | None:
    """Return by seed what c of Cho's translator knows beyond the usual word, of the first and of the last four words.

    The last symbol is left out: it is the full stop nearly always.
    """
    saved = measured("multi30k")
    if saved is None:
        return None
    runs = [row["remembered"] for row in saved["rows"] if row["name"].startswith("cho, seed")]
    first, last = (
        [statistics.fmean(p["right"] - p["usual"] for p in places if p["place"] in part) for places in runs]
        for part in (range(4), range(-5, -1))
    )
    return first, last
