"""C79: A layer that trains while it reads keeps improving with more context, where a recurrent network has levelled off.

中文：边读边训练的层随上下文变长而持续变好，循环网络则早已不再变好。
Seed: 000_56d5b8bda4e4cf77.txt:218
Budget: minutes
Expected: the paper shows it from 16,000 tokens on, with models a thousand times as large; here, 512 characters and a few minutes of training, the gain of a longer context may be too small to tell
预期：论文在 16,000 个 token 以上、千倍大的模型上观察到；此处只有 512 个字符、训练几分钟，上下文变长的收益可能小到无法分辨
Rule: with the gain of 512 characters of context over 128, for the same characters: holds if the intervals of TTT's gain minus an LSTM's, and of TTT's, are above 0.01 nats; does not hold if TTT's minus the LSTM's is below -0.01; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval, looks_ahead
from recollect.story.texts import characters, next_loss, windows
from recollect.views.bilingual import Bilingual

GIVEN, HELD_OUT = 200_000, 20_000
CONTEXTS = (8, 16, 32, 64, 128, 256, 512)
NEAR, FAR, PREDICTED = 128, CONTEXTS[-1], 32
FAMILIES = {"lstm": (44, 1), "ttt-linear": (36, 1), "transformer": (36, 1)}  # width and layers: equal parameters
Profile = dict[int, float]  # the loss by the characters of context
Interval = tuple[float, float]


def run(budget: Budget) -> Result:
    text, symbols = characters(GIVEN)
    updates, rows = (2, 4) if budget.is_small else (60, 40)
    found = {
        name: [_losses(name, text, symbols, seed, updates, rows) for seed in range(budget.seeds)] for name in FAMILIES
    }
    gains = {name: [one[NEAR] - one[FAR] for one in losses] for name, losses in found.items()}
    apart = [ttt - lstm for ttt, lstm in zip(gains["ttt-linear"], gains["lstm"], strict=True)]
    mean = {name: statistics.fmean(values) for name, values in gains.items()}
    first = {name: statistics.fmean(one[CONTEXTS[0]] - one[NEAR] for one in losses) for name, losses in found.items()}
    low, high = interval(apart)
    figures = ", ".join(f"{name} {first[name]:.2f} + {mean[name]:.3f}" for name in FAMILIES)
    models = [_model(name, symbols) for name in FAMILIES]
    return Result(
        verdict_of((low, high), interval(gains["ttt-linear"])),
        Bilingual(
            f"Gain of {NEAR} characters of context over {CONTEXTS[0]}, and of {FAR} over {NEAR}, in nats: {figures}; TTT minus LSTM {statistics.fmean(apart):+.3f} [{low:+.3f}, {high:+.3f}].",
            f"上下文由 {CONTEXTS[0]} 增至 {NEAR}、再增至 {FAR} 个字符的收益（奈特）：{figures}；TTT 减 LSTM 为 {statistics.fmean(apart):+.3f} [{low:+.3f}, {high:+.3f}]。",
        ),
        statistics.fmean(apart),
        (low, high),
        Control(Bilingual("LSTM's own gain", "LSTM 自己的收益"), mean["lstm"]),
        Check(
            Bilingual("no model looks ahead", "没有模型偷看后文"),
            not any(looks_ahead(lambda ids, m=model: m(ids)[0], text[None, :48], 40) for model in models),  # type: ignore[misc]
        ),
        chart=Chart(
            Bilingual("Loss of the same characters by context", "同样字符的损失与上下文长度"),
            Bilingual("characters of context", "上下文字符数"),
            Bilingual("nats", "奈特"),
            [
                Curve(name, [(float(n), statistics.fmean(one[n] for one in losses)) for n in CONTEXTS])
                for name, losses in found.items()
            ],
            log_x=True,
        ),
        rows=[
            {"family": name, "parameters": size_of(model), "gain": mean[name]}
            for name, model in zip(FAMILIES, models, strict=True)
        ],
    )


def verdict_of(apart: Interval, gain: Interval) -> Verdict:
    """Return the verdict of TTT's late gain minus the LSTM's, and of TTT's."""
    if apart[1] < -0.01:
        return "does not hold"
    return "holds" if apart[0] > 0.01 and gain[0] > 0.01 else "not shown"


def _model(name: str, symbols: int) -> LanguageModel:
    width, layers = FAMILIES[name]
    return LanguageModel(name, symbols, width=width, layers=layers, heads=2)


def _losses(name: str, text: Tensor, symbols: int, seed: int, updates: int, rows: int) -> Profile:
    """Train on stretches of 512 characters; return the loss of the same held-out characters by context."""
    torch.manual_seed(seed)
    model = _model(name, symbols)
    fit(model, lambda: next_loss(model, windows(text[:-HELD_OUT], 4, FAR)), updates, rate=0.02)
    ids = windows(text[-HELD_OUT:], rows, FAR + PREDICTED)
    with torch.no_grad():
        return {n: _last_loss(model, ids[:, -n - PREDICTED :]) for n in CONTEXTS}


def _last_loss(model: LanguageModel, ids: Tensor) -> float:
    logits = model(ids[:, :-1])[0][:, -PREDICTED:]
    return float(F.cross_entropy(logits.flatten(0, 1), ids[:, -PREDICTED:].flatten()))
