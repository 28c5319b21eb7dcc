"""C44: The vector c can be computed in several ways: the last state, a function of it, or a function of all states.

中文：c 有多种获得方法：最后一个隐状态、它的某种变换，或所有隐状态的某种变换。
Seed: 003_d30a3ba1164faeec.txt:175, 003_d30a3ba1164faeec.txt:176, 003_d30a3ba1164faeec.txt:177, 003_d30a3ba1164faeec.txt:178
Budget: minutes
Expected: all five ways learn; functions of all states (mean, max, attention) are better where the answer is about the bag of symbols, the last state where it is about their order
预期：五种方法都能学会；答案只与符号集合有关时，所有隐状态的函数（均值、最大、注意力）更好；答案与顺序有关时，最后一个隐状态更好
Rule: holds if in both tasks the interval of each way's accuracy above the most frequent answer is above 0; does not hold if one of them is below 0; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.gru import GRU
from recollect.models.encoders import CONTEXTS, Pooling, RecurrentEncoder
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.results import measured
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH, HIDDEN = 6, 16, 24
TASKS = {"bag": 1, "order": LENGTH}  # how many symbols are asked for
POOLED = ("mean", "max", "attention")
ROWS = 1000
Cells = Mapping[tuple[str, str], Sequence[tuple[float, float]]]  # gains, and those with other rows' sources


class PooledSource(nn.Module):
    """A GRU, one vector c of its states, and a linear map to the answers."""

    def __init__(self, way: str, answers: int) -> None:
        super().__init__()
        self.encoder = RecurrentEncoder(Embedding(SYMBOLS, HIDDEN), GRU.stack(HIDDEN, HIDDEN, 1))
        self.pooling = Pooling(way, HIDDEN)
        self.out = nn.Linear(HIDDEN, answers * SYMBOLS)

    def forward(self, source: Tensor) -> Tensor:
        """Return logits (B, answers, V)."""
        features, states = self.encoder(source)
        c = self.pooling(features, states, torch.ones_like(source, dtype=torch.bool))
        return self.out(c).unflatten(1, (-1, SYMBOLS))


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 300
    seeds = range(budget.seeds)
    cells = {(task, way): [_gains(task, way, seed, updates) for seed in seeds] for task in TASKS for way in CONTEXTS}
    bounds = {cell: interval([own for own, _ in pairs]) for cell, pairs in cells.items()}
    mean = {cell: statistics.fmean(own for own, _ in pairs) for cell, pairs in cells.items()}
    least = min(mean, key=lambda cell: mean[cell])
    shuffled = statistics.fmean(other for pairs in cells.values() for _, other in pairs)
    shown = {task: ", ".join(f"{way} {mean[task, way]:.0%}" for way in CONTEXTS) for task in TASKS}
    crossed = {task: _pooled_gain(cells, task) for task in TASKS}
    bag, order = (
        f"{statistics.fmean(values):+.2f} [{interval(values)[0]:.2f}, {interval(values)[1]:.2f}]"
        for values in crossed.values()
    )
    cited = _translated()
    found = Bilingual(
        f"Accuracy above the most frequent answer: the commonest symbol: {shown['bag']}; all symbols in order: {shown['order']}. Mean of the pooled minus the last "
        f"state: {bag} and {order}.{cited.en}",
        f"高于猜最常见答案的正确率：出现最多的符号：{shown['bag']}；按顺序回忆全部符号：{shown['order']}。三种汇聚的均值减最后状态：{bag} 与 {order}。{cited.zh}",
    )
    return Result(
        verdict_of(list(bounds.values())),
        found,
        mean[least],
        bounds[least],
        Control(Bilingual("the most frequent answer", "最常见的答案"), 0.0),
        Check(
            Bilingual("with another row's source nothing is gained", "换成别的行的源序列时没有增益"), shuffled < 0.02
        ),
        rows=[{"task": task, "way": way, "gain": gain} for (task, way), gain in mean.items()],
    )


def verdict_of(bounds: Sequence[tuple[float, float]]) -> Verdict:
    """Return the verdict of the intervals of each way's accuracy above the most frequent answer."""
    if all(low > 0 for low, _ in bounds):
        return "holds"
    return "does not hold" if any(high < 0 for _, high in bounds) else "not shown"


def _pooled_gain(cells: Cells, task: str) -> list[float]:
    """Return, for each seed, the mean of the three pooled ways minus the last state."""
    pooled = zip(*(cells[task, way] for way in POOLED), strict=True)
    return [
        statistics.fmean(own for own, _ in row) - last
        for row, (last, _) in zip(pooled, cells[task, "last"], strict=True)
    ]


def _gains(task: str, way: str, seed: int, updates: int) -> tuple[float, float]:
    """Return the accuracy on new sources above the most frequent answer, and that with other rows' sources."""
    torch.manual_seed(seed)
    model = PooledSource(way, TASKS[task])
    fit(model, lambda: _loss(model, *_draw(task, 64)), updates, rate=0.01)
    source, answer = _draw(task, ROWS)
    with torch.no_grad():
        own, other = (model(given).argmax(2) == answer for given in (source, source.roll(1, 0)))
    usual = float(F.one_hot(answer, SYMBOLS).float().mean(0).amax(1).mean())
    return float(own.float().mean()) - usual, float(other.float().mean()) - usual


def _draw(task: str, rows: int) -> tuple[Tensor, Tensor]:
    """Return sources (B, S), and the answers: the commonest symbol, the lowest of equals (B, 1), or all (B, S)."""
    source = torch.randint(SYMBOLS, (rows, LENGTH))
    return source, F.one_hot(source, SYMBOLS).sum(1).argmax(1, keepdim=True) if task == "bag" else source


def _loss(model: PooledSource, source: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(model(source).flatten(0, 1), answer.flatten())


def _translated() -> Bilingual:
    """Return BLEU of the same five in Multi30k, where measured."""
    saved = measured("multi30k")
    rows = {} if saved is None else {row["name"]: row for row in saved["rows"]}
    names = [f"static, {way}" for way in CONTEXTS]
    if not all(name in rows for name in names):
        return Bilingual("", "")
    scores = [
        f"{way} {rows[name]['test_2016_flickr']['beam 5']['bleu_lowercase']:.1f}"
        for way, name in zip(CONTEXTS, names, strict=True)
    ]
    joined = ", ".join(scores)
    return Bilingual(
        f" BLEU on Multi30k (benchmarks/results/multi30k.json, one seed): {joined}.",
        f"Multi30k 的 BLEU（benchmarks/results/multi30k.json，一个种子）：{joined}。",
    )
