"""C15: Sharing weights over time gives every word the same weight: important words cannot be told apart.

中文：随时间共享权重意味着每个词权重相同，无法区分词的重要程度。
Seed: 000_56d5b8bda4e4cf77.txt:125, 003_d30a3ba1164faeec.txt:144
Budget: minutes
Expected: in a plain RNN that learned whether a review is kind, ‖∂ logit / ∂ word‖ differs between words by more than half of its mean, and a negation that turns the judgement matters more than fillers
预期：学会判断评价好坏的普通 RNN 中，‖∂ logit / ∂ 词‖ 在词之间的变异系数高于 0.5，且反转判断的否定词比虚词重要
Rule: of models with at least 0.9 of new sentences right in every seed: does not hold if the interval of the gradient's coefficient of variation is above 0.5 and that of ln(negation / fillers), by how far the logit moves without the word, above 0; holds if the coefficient's interval is below 0.05; else not shown
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.data.synthetic.label_generators import BAD, GOOD, kindness
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

TRAINED, NEW, EXPLAINED = 2000, 500, 200  # sentences
WIDTH, HIDDEN, ROWS = 16, 32, 64
LEARNED, UNEVEN, EVEN = 0.9, 0.5, 0.05
NEGATIONS, FILLERS = ("not", "never"), ("the", "was", ".")
GROUPS = ("adjective", "negation that turns it", "negation that does not", "fillers")
IN_CHINESE = ("形容词", "反转判断的否定词", "不反转的否定词", "虚词")
Sentence = tuple[list[str], bool]  # words, and whether they are kind


@dataclass(frozen=True)
class MeasuredModel:
    """What is measured of one model."""

    accuracy: float  # on new sentences
    swapped: float  # with the labels of other sentences
    variation: float  # of the influences in a sentence, by their mean
    slopes: dict[str, float]  # ‖∂ logit / ∂ word‖ in each group of words, by the mean of their sentence
    effects: dict[
        str, float
    ]  # the same of how far the logit moves without the word: a gradient is that of another word


def run(budget: Budget) -> Result:
    sentences = [(text.split(), label == "kind") for text, label in kindness(count=TRAINED + NEW)]
    updates = 3 if budget.is_small else 800
    found = [_measure(sentences, seed, updates) for seed in range(budget.seeds)]
    variations = [one.variation for one in found]
    turning = [math.log(one.effects[GROUPS[1]] / one.effects[GROUPS[3]]) for one in found]
    mean = {name: statistics.fmean(one.effects[name] for one in found) for name in GROUPS}
    slopes = {name: statistics.fmean(one.slopes[name] for one in found) for name in GROUPS}
    right = statistics.fmean(one.accuracy for one in found)
    figures = ", ".join(f"{name} {value:.2f} ({slopes[name]:.2f})" for name, value in mean.items())
    chinese = "，".join(
        f"{name} {value:.2f}（{slope:.2f}）"
        for name, value, slope in zip(IN_CHINESE, mean.values(), slopes.values(), strict=True)
    )
    words = Bilingual(
        f"In new sentences ({right:.0%} right) the gradient of a word varies by {statistics.fmean(variations):.2f} of its mean. How far the logit moves without a word, by the mean of the sentence (the gradient in brackets): {figures}.",
        f"新句子（正确率 {right:.0%}）中，各词梯度的变异系数为 {statistics.fmean(variations):.2f}。去掉一个词后 logit 的变化，以句内均值为 1（括号内为梯度）：{chinese}。",
    )
    train, new = ({" ".join(text) for text, _ in part} for part in (sentences[:TRAINED], sentences[TRAINED:]))
    swapped = statistics.fmean(one.swapped for one in found)
    return Result(
        verdict_of(min(one.accuracy for one in found), interval(variations), interval(turning)),
        words,
        statistics.fmean(variations),
        interval(variations),
        Control(Bilingual("every word the same weight", "每个词权重相同"), 0.0),
        Check(
            Bilingual(
                "new sentences are not in the training part, and labels of other sentences are at chance",
                "新句子不在训练部分中，且换成别的句子的标签时处于随机水平",
            ),
            not train & new and abs(swapped - 0.5) < 0.06,
        ),
        chart=Chart(
            Bilingual(
                "Influence of words: " + ", ".join(f"{place} {name}" for place, name in enumerate(GROUPS)),
                "词的影响：" + "，".join(f"{place} {name}" for place, name in enumerate(IN_CHINESE)),
            ),
            Bilingual("group of words", "词的类别"),
            Bilingual("by the mean of the sentence", "以句内均值为 1"),
            [
                Curve(kind, [(float(place), values[name]) for place, name in enumerate(GROUPS)])
                for kind, values in (("without the word", mean), ("gradient", slopes))
            ],
        ),
        rows=[
            {"accuracy": one.accuracy, "variation": one.variation, "slopes": one.slopes, "effects": one.effects}
            for one in found
        ],
    )


def verdict_of(accuracy: float, variation: tuple[float, float], turning: tuple[float, float]) -> Verdict:
    """Return the verdict of the lowest accuracy, and of the intervals of the variation and of ln(negation / fillers)."""
    if accuracy < LEARNED:
        return "not shown"
    if variation[0] > UNEVEN and turning[0] > 0:
        return "does not hold"
    return "holds" if variation[1] < EVEN else "not shown"


def _measure(sentences: list[Sentence], seed: int, updates: int) -> MeasuredModel:
    torch.manual_seed(seed)
    symbols = {word: i + 1 for i, word in enumerate(sorted({word for text, _ in sentences for word in text}))}
    longest = max(len(text) for text, _ in sentences)
    ids = torch.tensor([[symbols[word] for word in text] + [0] * (longest - len(text)) for text, _ in sentences])
    labels = torch.tensor([float(label) for _, label in sentences])
    model = Stack(Embedding(len(symbols) + 1, WIDTH), RNN(WIDTH, HIDDEN), Linear(HIDDEN, 1))

    def loss() -> Tensor:
        rows = torch.randint(TRAINED, (ROWS,))
        return F.binary_cross_entropy_with_logits(_logits(model, ids[rows]), labels[rows])

    fit(model, loss, updates)
    with torch.no_grad():
        hits = (_logits(model, ids[TRAINED:]) > 0) == labels[TRAINED:].bool()
        swapped = (_logits(model, ids[TRAINED:]) > 0) == labels[TRAINED:].bool().roll(1)
    texts = [text for text, _ in sentences[TRAINED:]]
    slopes = [_slopes(model, row[: len(text)]) for row, text in _explained(ids, texts)]
    effects = [_effects(model, row[: len(text)]) for row, text in _explained(ids, texts)]
    variation = statistics.fmean(float(one.std() / one.mean()) for one in slopes)
    accuracy, others = (float(share.float().mean()) for share in (hits, swapped))
    return MeasuredModel(accuracy, others, variation, _by_group(slopes, texts), _by_group(effects, texts))


def _explained(ids: Tensor, texts: list[list[str]]) -> list[tuple[Tensor, list[str]]]:
    """Return the first new sentences, as ids and as words."""
    return list(zip(ids[TRAINED:], texts, strict=True))[:EXPLAINED]


def _logits(model: Stack, ids: Tensor) -> Tensor:
    """Return the logit of kindness after each row's last word, (B,)."""
    valid = ids > 0
    read = model(ids, valid=valid)[0][:, :, 0]  # (B, T)
    return read.gather(1, valid.sum(1, keepdim=True) - 1)[:, 0]


def _slopes(model: Stack, ids: Tensor) -> Tensor:
    """Return ‖∂ logit / ∂ word‖ of each word of a sentence, (T,)."""
    table, cell, head = model.layers
    x = table(ids[None])[0].detach().requires_grad_()  # (1, T, D)
    (slope,) = torch.autograd.grad(head(cell(x)[0])[0][0, -1, 0], x)
    return slope[0].norm(dim=1)


@torch.no_grad()
def _effects(model: Stack, ids: Tensor) -> Tensor:
    """Return how far the logit moves where each word is left out, (T,)."""
    without = torch.stack([torch.cat([ids[:t], ids[t + 1 :]]) for t in range(len(ids))])  # (T, T - 1)
    return (_logits(model, without) - _logits(model, ids[None])).abs()


def _by_group(values: list[Tensor], texts: list[list[str]]) -> dict[str, float]:
    """Return the mean of each group of words, by the mean of their sentence."""
    found: dict[str, list[float]] = {name: [] for name in GROUPS}
    for one, text in zip(values, texts, strict=False):
        for place, group in _groups(text):
            found[group].append(float(one[place] / one.mean()))
    return {name: statistics.fmean(group) for name, group in found.items()}


def _groups(text: list[str]) -> list[tuple[int, str]]:
    """Return the places of a sentence's words that belong to a group: a negation turns what stands behind `the`."""
    subject = text.index("the")
    found = [(place, GROUPS[0]) for place, word in enumerate(text) if word in (*GOOD, *BAD)]
    found += [(place, GROUPS[1 if place > subject else 2]) for place, word in enumerate(text) if word in NEGATIONS]
    return found + [(place, GROUPS[3]) for place, word in enumerate(text) if word in FILLERS]
