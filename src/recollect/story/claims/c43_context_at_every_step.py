"""C43: A context given only at the decoder's start decays over its steps; given at every step it does not.

中文：只在解码开始时给出的上下文会随步数衰减，每一步都给出则不会。
Seed: 000_56d5b8bda4e4cf77.txt:94, 000_56d5b8bda4e4cf77.txt:98, 000_56d5b8bda4e4cf77.txt:100
Budget: minutes
Expected: asked for symbols of the source in random order, both decoders are as good at first; later the one with the context at every step is better
预期：按随机顺序询问源序列中的符号，起初两种解码器一样好；步数多了以后，每步都有上下文的更好
Rule: with the advantage of the context at every step, late steps minus the first five: holds if its interval is above 0.02 at the last five steps of training's length; holds if … (more steps than in training) where it is above 0.02 at eight times as many only; does not hold if both are below 0.02 where both decoders are right in more than half at first; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.translation import Translator
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.story.results import measured
from recollect.views.bilingual import Bilingual

SYMBOLS, LENGTH = 6, 3
STEPS, LONG, PART = 20, 160, 5  # of training, of the test, and of each end that is compared
LEARNED = 0.5  # of the answers right: below it nothing is refuted
SHAPES = {"at the start": ("sutskever", 40), "at every step": ("cho", 29)}  # about as many parameters


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 400
    measures = {name: [_measure(name, seed, updates) for seed in range(budget.seeds)] for name in SHAPES}
    start, every = ([profile for profile, _ in measures[name]] for name in SHAPES)
    shuffled = statistics.fmean(other for pairs in measures.values() for _, other in pairs)
    advantages = [second - first for first, second in zip(start, every, strict=True)]
    within, beyond = ([_late(gain, steps) for gain in advantages] for steps in (STEPS, LONG))
    mean = {name: torch.stack([profile for profile, _ in pairs]).mean(0) for name, pairs in measures.items()}
    ends = [float(values[end - PART : end].mean()) for values in mean.values() for end in (PART, STEPS, LONG)]
    cited = _translated()
    sizes = [size_of(_model(name)) for name in SHAPES]
    found = Bilingual(
        f"Right at the first {PART} steps, the last of {STEPS} as in training and the last of {LONG}: context at the start {ends[0]:.1%}, {ends[1]:.1%}, "
        f"{ends[2]:.1%}; at every step {ends[3]:.1%}, {ends[4]:.1%}, {ends[5]:.1%} ({sizes[0]:,} and {sizes[1]:,} parameters).{cited.en}",
        f"最初 {PART} 步、训练长度 {STEPS} 步的末尾、{LONG} 步的末尾的正确率：上下文只在开始时给出 {ends[0]:.1%}、{ends[1]:.1%}、{ends[2]:.1%}；"
        f"每步给出 {ends[3]:.1%}、{ends[4]:.1%}、{ends[5]:.1%}（参数量 {sizes[0]:,} 与 {sizes[1]:,}）。{cited.zh}",
    )
    chart = Chart(
        Bilingual("Symbols of the source recalled, by decoder step", "按解码步数，回忆源符号的正确率"),
        Bilingual("decoder step", "解码步"),
        Bilingual("right", "正确率"),
        [Curve(name, [(float(t), float(value)) for t, value in enumerate(values)]) for name, values in mean.items()],
    )
    return Result(
        verdict_of(interval(within), interval(beyond), min(ends[0], ends[3])),
        found,
        statistics.fmean(within),
        interval(within),
        Control(Bilingual("chance", "随机"), 1 / SYMBOLS),
        Check(
            Bilingual("with another row's source it is at chance", "换成别的行的源序列时处于随机水平"),
            abs(shuffled - 1 / SYMBOLS) < 0.02,
        ),
        condition=Bilingual("there are many more steps than in training", "步数远多于训练时"),
        chart=chart,
    )


def verdict_of(within: tuple[float, float], beyond: tuple[float, float], learned: float) -> Verdict:
    """Return the verdict of the advantage, late minus early, in training's length and beyond, and of accuracy at first."""
    if within[0] > 0.02:
        return "holds"
    if beyond[0] > 0.02:
        return "holds if"
    is_none = within[1] < 0.02 and beyond[1] < 0.02
    return "does not hold" if is_none and learned > LEARNED else "not shown"


def _model(name: str) -> Translator:
    family, width = SHAPES[name]
    return Translator(family, SYMBOLS, max(SYMBOLS, LENGTH), width=width, cell="gru")


def _measure(name: str, seed: int, updates: int) -> tuple[Tensor, float]:
    """Return the share of new symbols right at each step (T,), and that with other rows' sources."""
    torch.manual_seed(seed)
    model = _model(name)
    fit(model, lambda: _loss(model, *_draw(64, STEPS)), updates, rate=0.01)
    source, asked = _draw(1000, LONG)
    target = source.gather(1, asked)
    with torch.no_grad():
        own, other = (model(asked, model.remember(given))[0].argmax(2) for given in (source, source.roll(1, 0)))
    return (own == target).float().mean(0), float((other == target).float().mean())


def _draw(rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return sources (B, S), and the places in them that the decoder is asked for (B, T)."""
    return torch.randint(SYMBOLS, (rows, LENGTH)), torch.randint(LENGTH, (rows, steps))


def _loss(model: Translator, source: Tensor, asked: Tensor) -> Tensor:
    logits, _ = model(asked, model.remember(source))
    return F.cross_entropy(logits.flatten(0, 1), source.gather(1, asked).flatten())


def _late(advantage: Tensor, steps: int) -> float:
    """Return the advantage (T,) at the last of so many steps, minus that at the first."""
    return float(advantage[steps - PART : steps].mean() - advantage[:PART].mean())


def _translated() -> Bilingual:
    """Return what a context at the start only costs at the first and last of 20 words of Multi30k, where measured."""
    saved = measured("multi30k")
    rows = {} if saved is None else {row["name"]: row["test_2016_flickr"]["by_position"] for row in saved["rows"]}
    if "start only" not in rows or "static, last" not in rows:
        return Bilingual("", "")
    costs = [one - other for one, other in zip(rows["start only"], rows["static, last"], strict=True)]
    first, last = statistics.fmean(costs[:5]), statistics.fmean(costs[-5:])
    return Bilingual(
        f" In Multi30k (benchmarks/results/multi30k.json, one seed) the start alone costs {first:+.2f} nats at words 1 to 5 and {last:+.2f} at 16 to 20.",
        f"Multi30k（benchmarks/results/multi30k.json，一个种子）中，只在开始时给出，在第 1 到 5 个词上代价为 {first:+.2f} 奈特，第 16 到 20 个词 {last:+.2f}。",
    )
