"""C41: With one fixed vector for the source, quality falls as the source becomes longer.

中文：源序列只由一个固定向量表示时，序列越长，质量越差。
Seed: 000_56d5b8bda4e4cf77.txt:93, 003_d30a3ba1164faeec.txt:188, 004_87792308dac9c34b.txt:43
Budget: minutes
Expected: where sources of 2 to 16 symbols are copied, the fixed vector falls with length and attention with as many parameters does not; if capacity decides, a vector three times as wide stays high at these lengths
预期：复制 2 到 16 个符号的源序列时，固定向量的正确率随长度下降，参数量相同的注意力模型不下降；若取决于容量，宽三倍的向量在这些长度上仍然很高
Rule: with the fall of accuracy from the shortest to the longest source: holds if the intervals of the fixed vector's fall minus attention's and of the fall of a vector three times as wide are above 0.1; holds if … (the vector is small for the source) where the first is above and the second below 0.1; does not hold if the first is below 0.05 where every model is right in more than half of the shortest sources; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import hits, size_of, teach
from recollect.story.judging import interval
from recollect.story.results import measured
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTHS, ROWS = 40, (2, 4, 8, 16), 500
BEGIN = SYMBOLS
LEARNED = 0.5  # of the answers right: below it nothing is refuted
MODELS: Mapping[str, tuple[str, int]] = {  # family and width; the first two have about as many parameters
    "fixed vector": ("cho", 27),
    "attention": ("luong", 32),
    "fixed vector, three times as wide": ("cho", 81),
}


def run(budget: Budget) -> Result:
    updates = 4 if budget.is_small else 500
    found = {name: [_measure(name, seed, updates) for seed in range(budget.seeds)] for name in MODELS}
    right = {name: [own for own, _ in pairs] for name, pairs in found.items()}
    guessed = statistics.fmean(other for pairs in found.values() for _, other in pairs)
    fixed, attention, wide = ([own[0] - own[-1] for own in rows] for rows in right.values())
    gap = [one - other for one, other in zip(fixed, attention, strict=True)]
    mean = {name: [statistics.fmean(column) for column in zip(*rows, strict=True)] for name, rows in right.items()}
    shown = {name: ", ".join(f"{share:.0%}" for share in shares) for name, shares in mean.items()}
    low, high = interval(gap)
    sizes = [size_of(_model(name)) for name in MODELS]
    cited = _translated()
    words = Bilingual(
        f"Symbols right at {', '.join(map(str, LENGTHS))} symbols: fixed vector {shown['fixed vector']} ({sizes[0]:,} parameters), attention {shown['attention']} "
        f"({sizes[1]:,}), a vector three times as wide {shown['fixed vector, three times as wide']} ({sizes[2]:,}). The fixed vector falls by "
        f"{statistics.fmean(gap):.2f} [{low:.2f}, {high:.2f}] more than attention, the wide one by {statistics.fmean(wide):.2f} [{interval(wide)[0]:.2f}, {interval(wide)[1]:.2f}] in all.{cited.en}",
        f"源长 {'、'.join(map(str, LENGTHS))} 时的符号正确率：固定向量 {shown['fixed vector']}（参数量 {sizes[0]:,}），注意力 {shown['attention']}（{sizes[1]:,}），"
        f"宽三倍的向量 {shown['fixed vector, three times as wide']}（{sizes[2]:,}）。固定向量比注意力多下降 {statistics.fmean(gap):.2f} [{low:.2f}, {high:.2f}]，"
        f"宽三倍的向量共下降 {statistics.fmean(wide):.2f} [{interval(wide)[0]:.2f}, {interval(wide)[1]:.2f}]。{cited.zh}",
    )
    chart = Chart(
        Bilingual("Copying a source, by its length", "按源长，复制源序列"),
        Bilingual("symbols of the source", "源序列的符号数"),
        Bilingual("symbols right", "符号正确率"),
        [Curve(name, list(zip(map(float, LENGTHS), shares, strict=True))) for name, shares in mean.items()],
        log_x=True,
    )
    figures = ((low, high), interval(wide), min(shares[0] for shares in mean.values()))
    return Result(
        verdict_of(*figures),
        words,
        statistics.fmean(gap),
        (low, high),
        Control(Bilingual("a model with another row's source", "换成别的行的源序列"), guessed),
        Check(
            Bilingual("with another row's source it is at chance", "换成别的行的源序列时处于随机水平"), guessed < 0.1
        ),
        condition=Bilingual(
            "the vector is small for the source; a wider one does not fall", "向量相对源序列太小；更宽的向量不下降"
        ),
        chart=chart,
        figures=figures,
    )


def verdict_of(gap: tuple[float, float], wide: tuple[float, float], learned: float) -> Verdict:
    """Return the verdict of the fall beyond attention's, of that of a wider vector, and of accuracy where it is least."""
    if gap[0] > 0.1:
        return "holds if" if wide[1] < 0.1 else "holds" if wide[0] > 0.1 else "not shown"
    return "does not hold" if gap[1] < 0.05 and learned > LEARNED else "not shown"


def _model(name: str) -> Translator:
    family, width = MODELS[name]
    feeding = {"input_feeding": False, "score": "dot"} if family == "luong" else {}
    return Translator(family, SYMBOLS, SYMBOLS + 1, width=width, cell="gru", **feeding)


def _measure(name: str, seed: int, updates: int) -> tuple[list[float], float]:
    """Return the share of new symbols right at each length, and that with other rows' sources."""
    torch.manual_seed(seed)
    model = _model(name)

    def draw() -> tuple[Tensor, Tensor]:
        source = _draw(32, LENGTHS[int(torch.randint(len(LENGTHS), ()))])
        return source, source

    teach(model, draw, updates, BEGIN, rate=0.01, enough=0.02)
    tests = [_draw(ROWS, length) for length in LENGTHS]
    own = [float(hits(model, source, source, BEGIN).float().mean()) for source in tests]
    return own, statistics.fmean(float(hits(model, test.roll(1, 0), test, BEGIN).float().mean()) for test in tests)


def _draw(rows: int, length: int) -> Tensor:
    """Return sources of symbols that all differ (B, length)."""
    return torch.rand(rows, SYMBOLS).argsort(1)[:, :length]


def _translated() -> Bilingual:
    """Return how much of its BLEU at 8 to 10 words each family keeps from 18 words on, in Multi30k, where measured."""
    saved = measured("multi30k")
    if saved is None:
        return Bilingual("", "")
    kept = []
    for family in ("sutskever", "cho", "bahdanau", "luong"):
        rows = [
            row["test_2016_flickr"]["by_length"] for row in saved["rows"] if row["name"].startswith(f"{family}, seed")
        ]
        if not rows:
            return Bilingual("", "")
        kept.append(statistics.fmean(parts[-1]["bleu_lowercase"] / parts[1]["bleu_lowercase"] for parts in rows))
    fixed, attending = (" / ".join(f"{share:.2f}" for share in part) for part in (kept[:2], kept[2:]))
    return Bilingual(
        f" In Multi30k (benchmarks/results/multi30k.json) sources of 18 words or more keep {fixed} of the BLEU at 8 to 10 words with a fixed vector, {attending} "
        "with attention.",
        f"Multi30k（benchmarks/results/multi30k.json）中，18 个词以上的源句保留 8 至 10 个词时 BLEU 的比例：固定向量 {fixed}，注意力 {attending}。",
    )
