"""C76: A Transformer is better at relations over a long range; an RNN keeps its value where the course in time decides.

中文：Transformer 更擅长长距离关系；在时间进程起决定作用的任务上，RNN 仍有价值。
Seed: 004_87792308dac9c34b.txt:77, 004_87792308dac9c34b.txt:107
Budget: minutes
Expected: after as many updates with as many parameters a Transformer recalls a symbol over 100 others, an LSTM hardly; trained to keep the parity of up to 40 bits, the LSTM keeps that of 500, the Transformer is at chance beyond 40
预期：参数量与更新次数相同时，Transformer 能隔着 100 个符号回忆起一个符号，LSTM 很难；用至多 40 位训练奇偶性，LSTM 在 500 位上仍正确，Transformer 超过 40 位后处于随机水平
Rule: holds if the intervals of accuracy are above 0, both of recall, Transformer minus LSTM, and of parity at 500 bits, LSTM minus Transformer, and the LSTM's parity is above 0.9; does not hold if one of the two is below 0; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

CUES, OTHERS, STEPS, FIRST = 8, 8, 110, 10  # the cue is one of the first so many symbols
ASK = CUES + OTHERS
TRAINED, LENGTHS = 40, (20, 40, 80, 160, 320, 500)
LONGEST, LAST = LENGTHS[-1], 10
FAMILIES = ("lstm", "transformer")
UPDATES = {"recall": 150, "parity": 150}
Interval = tuple[float, float]


def run(budget: Budget) -> Result:
    share = 100 if budget.is_small else 1
    seeds = range(budget.seeds)
    recall = {name: [_recall(name, seed, UPDATES["recall"] // share) for seed in seeds] for name in FAMILIES}
    parity = {name: [_parity(name, seed, UPDATES["parity"] // share) for seed in seeds] for name in FAMILIES}
    right = {name: [pair[0] for pair in found] for name, found in recall.items()}
    far = {name: [one[LONGEST] for one in found] for name, found in parity.items()}
    kept = [lstm - other for lstm, other in zip(far["lstm"], far["transformer"], strict=True)]
    recalled = [other - lstm for lstm, other in zip(right["lstm"], right["transformer"], strict=True)]
    near = {name: statistics.fmean(one[TRAINED] for one in found) for name, found in parity.items()}
    mean = {name: (statistics.fmean(right[name]), statistics.fmean(far[name])) for name in FAMILIES}
    shuffled = statistics.fmean(pair[1] for found in recall.values() for pair in found)
    sizes = {name: (size_of(_model(name, "recall")), size_of(_model(name, "parity"))) for name in FAMILIES}
    (r, p), (rt, pt) = mean["lstm"], mean["transformer"]
    found = Bilingual(
        f"Recall of a symbol over {STEPS - FIRST} others or more: Transformer {rt:.0%}, LSTM {r:.0%} ({sizes['transformer'][0]:,} and {sizes['lstm'][0]:,} parameters). Parity of {TRAINED} bits, as in training, and of "
        f"{LONGEST}: LSTM {near['lstm']:.0%} and {p:.0%}, Transformer {near['transformer']:.0%} and {pt:.0%} ({sizes['lstm'][1]:,} and {sizes['transformer'][1]:,}).",
        f"隔着至少 {STEPS - FIRST} 个符号回忆一个符号：Transformer {rt:.0%}，LSTM {r:.0%}（参数量 {sizes['transformer'][0]:,} 与 {sizes['lstm'][0]:,}）。{TRAINED} 位（与训练相同）与 "
        f"{LONGEST} 位的奇偶性：LSTM {near['lstm']:.0%} 与 {p:.0%}，Transformer {near['transformer']:.0%} 与 {pt:.0%}（{sizes['lstm'][1]:,} 与 {sizes['transformer'][1]:,}）。",
    )
    rows = [
        {"family": name, "recall": mean[name][0], "parity": near[name], "parity_far": mean[name][1]}
        for name in FAMILIES
    ]
    return Result(
        verdict_of(interval(recalled), interval(kept), p),
        found,
        statistics.fmean(kept),
        interval(kept),
        Control(Bilingual("if the LSTM were at chance too", "假如 LSTM 也处于随机水平"), 0.0),
        Check(
            Bilingual("with another row's symbol both are at chance", "换成别行的符号时，二者处于随机水平"),
            abs(shuffled - 1 / CUES) < 0.05,
        ),
        chart=_chart(parity),
        rows=rows,
    )


def verdict_of(recalled: Interval, kept: Interval, parity: float) -> Verdict:
    """Return the verdict of recall, Transformer minus LSTM, of parity, LSTM minus Transformer, and of the LSTM's."""
    if recalled[1] < 0 or kept[1] < 0:
        return "does not hold"
    return "holds" if recalled[0] > 0 and kept[0] > 0 and parity > 0.9 else "not shown"


def _chart(parity: dict[str, list[dict[int, float]]]) -> Chart:
    curves = [
        Curve(name, [(float(n), statistics.fmean(one[n] for one in found)) for n in LENGTHS])
        for name, found in parity.items()
    ]
    return Chart(
        Bilingual(f"Parity, trained on up to {TRAINED} bits", f"奇偶性，用至多 {TRAINED} 位训练"),
        Bilingual("bits", "位数"),
        Bilingual("right", "正确率"),
        curves,
    )


def _model(family: str, task: str) -> LanguageModel:
    """Return a model of this task, with about as many parameters in either family."""
    symbols = ASK + 1 if task == "recall" else 2
    if family == "lstm":
        return LanguageModel("lstm", symbols, width=32 if task == "recall" else 36, layers=1)
    if task == "recall":
        return LanguageModel("transformer", symbols, width=26, layers=1, heads=1)
    return LanguageModel("transformer", symbols, width=20, layers=2, heads=2)


# ---- recall: one symbol of a kind of its own, others, then a question --------------------------------


def _recall(family: str, seed: int, updates: int) -> tuple[float, float]:
    """Return the shares of right symbols, and of those of another row."""
    torch.manual_seed(seed)
    model = _model(family, "recall")
    fit(model, lambda: _recall_loss(model, *_draw(16)), updates, rate=0.02)
    ids, cue = _draw(200)
    with torch.no_grad():
        said = model(ids)[0][:, -1, :CUES].argmax(1)
    return float((said == cue).float().mean()), float((said == cue.roll(1)).float().mean())


def _draw(rows: int) -> tuple[Tensor, Tensor]:
    """Return sequences (B, T) and the symbol (B,) that each is asked for."""
    ids = CUES + torch.randint(OTHERS, (rows, STEPS))
    cue = torch.randint(CUES, (rows,))
    ids[torch.arange(rows), torch.randint(FIRST, (rows,))] = cue
    ids[:, -1] = ASK
    return ids, cue


def _recall_loss(model: LanguageModel, ids: Tensor, cue: Tensor) -> Tensor:
    return F.cross_entropy(model(ids)[0][:, -1, :CUES], cue)


# ---- parity: at every step, whether the number of ones so far is odd ---------------------------------


def _parity(family: str, seed: int, updates: int) -> dict[int, float]:
    """Return the shares of right parities by the number of bits, each the mean of the last steps."""
    torch.manual_seed(seed)
    model = _model(family, "parity")
    fit(model, lambda: _parity_loss(model, torch.randint(2, (16, TRAINED))), updates, rate=0.02)
    bits = torch.randint(2, (40, LONGEST))
    with torch.no_grad():
        right = (model(bits)[0].argmax(2) == bits.cumsum(1) % 2).float().mean(0)
    return {n: float(right[n - LAST : n].mean()) for n in LENGTHS}


def _parity_loss(model: LanguageModel, bits: Tensor) -> Tensor:
    return F.cross_entropy(model(bits)[0].flatten(0, 1), (bits.cumsum(1) % 2).flatten())
