"""C83: RNNs suit language modelling, speech and sentiment; Transformers translation, documents and captions.

中文：RNN 适合语言建模、语音识别和情感分析；Transformer 适合机器翻译、文档分类和图像字幕。
Seed: 004_87792308dac9c34b.txt:75, 004_87792308dac9c34b.txt:77
Budget: minutes
Expected: with as many parameters and updates the LSTM is the better language model of little text; with more of it the gap closes; sentiment, translation and captions are cited from the benchmarks
预期：参数量与更新次数相同时，文本少则 LSTM 的语言模型更好，文本越多差距越小；情感、翻译与字幕引用已有的基准结果
Rule: with the loss of a Transformer minus an LSTM's in language modelling: holds if its interval is above 0 at every size of the text, and the LSTM is ahead in sentiment, the Transformer in translation and, by chrF and BLEU, in captions; does not hold if it is below 0 at every size or sentiment, translation or both figures of captions are the other way round; holds if … (little text) where it is above 0 at the smallest size and below at the largest, and the others as claimed; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.story.texts import characters, next_loss, sees_later, windows
from recollect.views.bilingual import Bilingual

SIZES = (1_000, 64_000)  # characters to train on
HELD_OUT, STEPS, BETWEEN = 8_000, 64, 50
WIDTHS = {"lstm": (44, 1), "transformer": (36, 1)}
CITED = ("labels-sst2", "multi30k", "captions")
RECURRENT = ("sutskever", "cho", "bahdanau", "luong")
Interval = tuple[float, float]


def run(budget: Budget) -> Result:
    saved = {name: measured(name) for name in CITED}
    for name, one in saved.items():
        if one is None:
            return not_measured(name)
    others = _others({name: one for name, one in saved.items() if one is not None})
    text, symbols = characters(SIZES[-1] + HELD_OUT)
    updates, rows = (2, 8) if budget.is_small else (250, HELD_OUT)
    seeds = range(budget.seeds)
    losses = {
        name: {size: [_loss(name, text, symbols, size, seed, updates, rows) for seed in seeds] for size in SIZES}
        for name in WIDTHS
    }
    apart = {size: [t - r for r, t in zip(*(losses[name][size] for name in WIDTHS), strict=True)] for size in SIZES}
    intervals = {size: interval(values) for size, values in apart.items()}
    figures = ", ".join(f"{size:,}: {statistics.fmean(values):+.2f}" for size, values in apart.items())
    sizes = [f"{size_of(_model(name, symbols)):,}" for name in WIDTHS]
    shown = {name: f"{better:+.3g}" for name, better in others.items()}
    return Result(
        verdict_of(list(intervals.values()), others),
        Bilingual(
            f"Loss of a Transformer minus an LSTM's ({sizes[1]} and {sizes[0]} parameters) by characters of text: {figures} nats. LSTM minus Transformer in sentiment {shown['sentiment']} (accuracy, SST-2, one seed); Transformer minus the best "
            f"recurrent model in translation {shown['translation']} BLEU (Multi30k); Transformer minus a recurrent decoder in captions {shown['captions, chrF']} chrF and {shown['captions, BLEU']} BLEU (one seed; benchmarks/results).",
            f"Transformer 与 LSTM（参数量 {sizes[1]} 与 {sizes[0]}）的损失之差，按文本字符数：{figures} 奈特。情感分类 LSTM 减 Transformer {shown['sentiment']}（SST-2 正确率，一个种子）；Transformer 减最好的"
            f"循环模型：翻译 {shown['translation']} BLEU（Multi30k）；图像字幕（Transformer 减循环解码器）{shown['captions, chrF']} chrF、{shown['captions, BLEU']} BLEU（一个种子；benchmarks/results）。",
        ),
        statistics.fmean(apart[SIZES[0]]),
        intervals[SIZES[0]],
        Control(Bilingual("at the largest size", "文本最多时"), statistics.fmean(apart[SIZES[-1]])),
        Check(
            Bilingual("no model looks ahead", "没有模型偷看后文"),
            not any(sees_later(model, text) for model in (_model(name, symbols) for name in WIDTHS)),
        ),
        condition=Bilingual("there is little text", "文本较少"),
        chart=_chart(losses),
        rows=[
            *(
                {
                    "task": "language",
                    "characters": size,
                    "difference": statistics.fmean(apart[size]),
                    "interval": list(intervals[size]),
                }
                for size in SIZES
            ),
            *({"task": name, "difference": better} for name, better in others.items()),
        ],
    )


def verdict_of(language: Sequence[Interval], others: Mapping[str, float]) -> Verdict:
    """Return the verdict of Transformer minus LSTM in loss by size, and of how far the named family is ahead elsewhere."""
    captions = [better for name, better in others.items() if name.startswith("captions")]
    rest = [better for name, better in others.items() if not name.startswith("captions")]
    if all(high < 0 for _, high in language) or min(rest) < 0 or max(captions) < 0:
        return "does not hold"
    if min(captions) < 0:  # its figures disagree
        return "not shown"
    if all(low > 0 for low, _ in language):
        return "holds"
    return "holds if" if language[0][0] > 0 and language[-1][1] < 0 else "not shown"


def _others(saved: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return by how much the family that the claim names is ahead in the tasks that benchmarks measured."""
    labels = {row["model"]: row["value"] for row in saved["labels-sst2"]["rows"]}
    bleu: dict[str, list[float]] = {}
    for row in saved["multi30k"]["rows"]:
        if ", seed " in row["name"]:
            found = row["test_2016_flickr"]["beam 5"]["bleu_lowercase"]
            bleu.setdefault(row["setting"]["family"], []).append(found)
    best = max(statistics.fmean(bleu[name]) for name in RECURRENT)
    english = {row["model"]: row for row in saved["captions"]["rows"] if row["language"] == "en"}
    return {
        "sentiment": labels["lstm"] - labels["transformer"],
        "translation": statistics.fmean(bleu["transformer"]) - best,
        **{
            f"captions, {name}": english["transformer"][measure] - english["show-attend-tell"][measure]
            for name, measure in (("chrF", "chrf"), ("BLEU", "bleu"))
        },
    }


def _model(name: str, symbols: int) -> LanguageModel:
    width, layers = WIDTHS[name]
    return LanguageModel(name, symbols, width=width, layers=layers, heads=2)


def _chart(losses: Mapping[str, Mapping[int, Sequence[float]]]) -> Chart:
    curves = [
        Curve(name, [(float(size), statistics.fmean(values)) for size, values in found.items()])
        for name, found in losses.items()
    ]
    return Chart(
        Bilingual("Loss on new text", "新文本上的损失"),
        Bilingual("characters to train on", "训练字符数"),
        Bilingual("nats", "奈特"),
        curves,
        log_x=True,
    )


def _loss(name: str, text: Tensor, symbols: int, size: int, seed: int, updates: int, rows: int) -> float:
    """Return the test loss where the loss was least on the validation half of the held-out text."""
    torch.manual_seed(seed)
    model = _model(name, symbols)
    train = text[SIZES[-1] - size : SIZES[-1]]
    valid, test = (
        part[: len(part) // (STEPS + 1) * (STEPS + 1)].view(-1, STEPS + 1) for part in text[-HELD_OUT:].chunk(2)
    )
    best, done = (float("inf"), float("inf")), 0

    def loss() -> Tensor:
        nonlocal best, done
        done += 1
        if done % BETWEEN == 0 or done == updates:
            with torch.no_grad():
                best = min(best, (float(next_loss(model, valid[:rows])), float(next_loss(model, test[:rows]))))
        return next_loss(model, windows(train, 8, STEPS))

    fit(model, loss, updates, rate=0.01)
    return best[1]
