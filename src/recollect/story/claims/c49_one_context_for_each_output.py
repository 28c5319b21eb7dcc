"""C49: With attention the encoder need not press the whole source into one fixed vector: every output has a context of its own.

中文：有了注意力，编码器不必把整个源序列压缩成一个固定向量：每个输出都有自己的上下文。
Seed: 003_d30a3ba1164faeec.txt:201, 000_56d5b8bda4e4cf77.txt:199
Budget: minutes
Expected: where the values of keys are asked for, attention recalls all pairs of a source of any tested length; a fixed vector with as many parameters recalls ever fewer. The contexts of attention differ from output to output
预期：按键询问值时，注意力在各个测试长度上都能回忆全部键值对；参数量相同的固定向量随对数增加能回忆的越来越少。注意力的上下文因输出而异
Rule: with the accuracy at the largest number of pairs: holds if the interval of attention minus the fixed vector is above 0.1 and that of attention above 0.9; does not hold if the difference is below 0.05 and attention above 0.9; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.record import record
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

KEYS, VALUES, PAIRS, ROWS = 24, 8, (2, 4, 8, 16), 500
MODELS: Mapping[str, tuple[str, int]] = {"fixed vector": ("cho", 27), "attention": ("luong", 32)}


def run(budget: Budget) -> Result:
    updates = 4 if budget.is_small else 1000
    found = {name: [_measure(name, seed, updates) for seed in range(budget.seeds)] for name in MODELS}
    right = {name: [own for own, _, _ in rows] for name, rows in found.items()}
    guessed = statistics.fmean(other for rows in found.values() for _, other, _ in rows)
    differ = statistics.fmean(apart for *_, apart in found["attention"])
    gap = [one[-1] - other[-1] for one, other in zip(right["attention"], right["fixed vector"], strict=True)]
    low, high = interval(gap)
    mean = {name: [statistics.fmean(column) for column in zip(*rows, strict=True)] for name, rows in right.items()}
    shown = {name: ", ".join(f"{share:.0%}" for share in shares) for name, shares in mean.items()}
    sizes = [size_of(_model(name)) for name in MODELS]
    words = Bilingual(
        f"Values right with {', '.join(map(str, PAIRS))} pairs: attention {shown['attention']} ({sizes[1]:,} parameters), fixed vector {shown['fixed vector']} "
        f"({sizes[0]:,}); at {PAIRS[-1]} pairs {statistics.fmean(gap):+.2f} [{low:.2f}, {high:.2f}]. The contexts of attention deviate from their mean over the outputs "
        f"by {differ:.2f} of their size, the fixed vector by 0.",
        f"{'、'.join(map(str, PAIRS))} 对时值的正确率：注意力 {shown['attention']}（参数量 {sizes[1]:,}），固定向量 {shown['fixed vector']}（{sizes[0]:,}）；"
        f"{PAIRS[-1]} 对时相差 {statistics.fmean(gap):+.2f} [{low:.2f}, {high:.2f}]。注意力的上下文在各输出间偏离均值的幅度为其大小的 {differ:.2f} 倍，固定向量为 0。",
    )
    chart = Chart(
        Bilingual("Values recalled, by the number of pairs", "按键值对的数量，回忆值的正确率"),
        Bilingual("pairs of the source", "源序列的键值对数"),
        Bilingual("values right", "值的正确率"),
        [Curve(name, list(zip(map(float, PAIRS), shares, strict=True))) for name, shares in mean.items()],
        log_x=True,
    )
    return Result(
        verdict_of((low, high), interval([own[-1] for own in right["attention"]])),
        words,
        statistics.fmean(gap),
        (low, high),
        Control(Bilingual("chance", "随机"), 1 / VALUES),
        Check(
            Bilingual("with another row's source it is at chance", "换成别的行的源序列时处于随机水平"),
            abs(guessed - 1 / VALUES) < 0.03,
        ),
        chart=chart,
    )


def verdict_of(gap: tuple[float, float], attention: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals, at most pairs, of attention minus the fixed vector, and of attention."""
    if gap[0] > 0.1 and attention[0] > 0.9:
        return "holds"
    return "does not hold" if gap[1] < 0.05 and attention[0] > 0.9 else "not shown"


def _model(name: str) -> Translator:
    family, width = MODELS[name]
    feeding = {"input_feeding": False, "score": "dot"} if family == "luong" else {}
    return Translator(family, KEYS + VALUES, KEYS, width=width, cell="gru", **feeding)


def _measure(name: str, seed: int, updates: int) -> tuple[list[float], float, float]:
    """Return the share of values right by the number of pairs, that with other rows' sources, and how contexts differ."""
    torch.manual_seed(seed)
    model = _model(name)

    def loss() -> Tensor:
        source, asked, value = _draw(32, PAIRS[int(torch.randint(len(PAIRS), ()))])
        return F.cross_entropy(model(asked, model.remember(source))[0].flatten(0, 1), value.flatten())

    fit(model, loss, updates, rate=0.01, enough=0.02)
    own: list[float] = []
    other: list[float] = []
    with torch.no_grad(), record(model) as seen:
        for source, asked, value in [_draw(ROWS, pairs) for pairs in PAIRS]:
            for kept, given in ((own, source), (other, source.roll(1, 0))):
                kept.append(float((model(asked, model.remember(given))[0].argmax(2) == value).float().mean()))
    return own, statistics.fmean(other), _apart(seen.calls.get("decoder.attend.context"))


def _draw(rows: int, pairs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (B, 2 P) of a key and its value, pair by pair; all keys in another order (B, P), their values."""
    keys = torch.rand(rows, KEYS).argsort(1)[:, :pairs]
    values = torch.randint(VALUES, (rows, pairs))
    order = torch.rand(rows, pairs).argsort(1)
    source = torch.stack([keys, KEYS + values], 2).flatten(1)
    return source, keys.gather(1, order), values.gather(1, order)


def _apart(contexts: list[Tensor] | None) -> float:
    """Return how far the contexts (B, T, D) of a row lie from their mean, relative to their size; none are all equal."""
    if contexts is None:
        return 0.0
    shares = [(one - one.mean(1, keepdim=True)).norm(dim=2).mean() / one.norm(dim=2).mean() for one in contexts]
    return float(torch.stack(shares).mean())
