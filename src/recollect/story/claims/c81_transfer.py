"""C81: Pre-training and fine-tuning transfer what was learned; with recurrent networks it is harder and transfers little.

中文：预训练加微调能迁移所学；循环网络的预训练更难，迁移也有限。
Seed: 004_87792308dac9c34b.txt:99, 004_87792308dac9c34b.txt:101
Budget: minutes
Expected: trained first on reviews without labels, in which what follows depends on whether they are kind, all four classify more sentences rightly after 10 to 200 labels than with new weights; LSTM and GRU gain about as much as GPT and BERT
预期：先在无标签的评论上训练（评论的下文取决于评价好坏），再用 10 至 200 个标签微调，四种模型都比从头训练对得更多；LSTM、GRU 的增益与 GPT、BERT 相当
Rule: with the gain of accuracy by pre-training, mean over 10, 50 and 200 labels: holds if the intervals of GPT's and BERT's gain and of theirs minus LSTM's and GRU's are above 0 and that of LSTM's and GRU's is below 0.05; holds if … (less, not little) where all three are above 0; does not hold if LSTM's and GRU's is above 0 and the difference below 0.05; else not shown
"""

from __future__ import annotations

import statistics
from random import Random
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.padding import pad
from recollect.data.synthetic.draw import pick
from recollect.data.synthetic.label_generators import kindness
from recollect.models.classification import Classifier
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

FAMILIES = {"lstm": (36, 1), "gru": (40, 1), "gpt": (32, 1), "bert": (32, 1)}  # width and layers
RECURRENT, ATTENTION = ("lstm", "gru"), ("gpt", "bert")
LABELS = (10, 50, 200)
LITTLE = 0.05  # of accuracy: what counts as little, and as no more
READ, TEST, LONGEST = 4000, 500, 40
UPDATES = {"lstm": 300, "gru": 300, "gpt": 150, "bert": 150}  # about as many seconds
TUNING, RATE = 50, 0.02
PRAISE = ("we will come again .", "everybody should see it .", "a pleasure !", "we told all our friends .")
BLAME = ("we will not come again .", "nobody should see it .", "what a waste !", "we want our money back .")
Model: TypeAlias = LanguageModel | MaskedModel
Interval = tuple[float, float]
Labelled = tuple[Tensor, Tensor, Tensor]  # ids (B, T), valid (B, T), labels (B,)


class Reviews:
    """Reviews without labels to read, and sentences with labels: some to learn from, others to be tested with."""

    def __init__(self) -> None:
        pairs = [(text.split(), label) for text, label in kindness(negated=0, count=READ + LABELS[-1] + TEST)]
        rng = Random(0)
        read = [text + pick(rng, PRAISE if label == "kind" else BLAME).split() for text, label in pairs[:READ]]
        self.sentences = {tuple(text) for text, _ in pairs[:READ]}
        self.tested = {tuple(text) for text, _ in pairs[-TEST:]}
        names = sorted({word for text in [*read, *(text for text, _ in pairs)] for word in text})
        self.words = {name: number for number, name in enumerate(names, 1)}  # 0: hidden
        self.read = pad([[self.words[word] for word in text] for text in read])
        self.known = self._labelled(pairs[READ:-TEST])
        self.test = self._labelled(pairs[-TEST:])

    def _labelled(self, pairs: list[tuple[list[str], str]]) -> Labelled:
        ids, valid = pad([[self.words[word] for word in text] for text, _ in pairs])
        return ids, valid, torch.tensor([int(label == "kind") for _, label in pairs])


def run(budget: Budget) -> Result:
    reviews = Reviews()
    share = 50 if budget.is_small else 1
    gains = {
        name: [_gains(name, reviews, seed, UPDATES[name] // share, TUNING // share) for seed in range(budget.seeds)]
        for name in FAMILIES
    }
    mean = {name: {n: statistics.fmean(one[n][1] for one in found) for n in LABELS} for name, found in gains.items()}
    scratch = {name: {n: statistics.fmean(one[n][0] for one in found) for n in LABELS} for name, found in gains.items()}
    recurrent, attention = (_of(gains, names) for names in (RECURRENT, ATTENTION))
    apart = [other - own for own, other in zip(recurrent, attention, strict=True)]
    low, high = interval(recurrent)
    figures = {name: "/".join(f"{value:+.0%}" for value in found.values()) for name, found in mean.items()}
    shown = ", ".join(f"{name.upper()} {figure}" for name, figure in figures.items())
    counts = "/".join(map(str, LABELS))
    text = Bilingual(
        f"Accuracy gained by pre-training, with {counts} labels: {shown}. LSTM and GRU together {statistics.fmean(recurrent):+.1%} [{low:+.1%}, {high:+.1%}], GPT and BERT minus these {statistics.fmean(apart):+.1%} "
        f"[{interval(apart)[0]:+.1%}, {interval(apart)[1]:+.1%}].",
        f"预训练带来的正确率增益（{counts} 个标签）：{shown}。LSTM 与 GRU 平均 {statistics.fmean(recurrent):+.1%} [{low:+.1%}, {high:+.1%}]，GPT 与 BERT 比它们多 {statistics.fmean(apart):+.1%} "
        f"[{interval(apart)[0]:+.1%}, {interval(apart)[1]:+.1%}]。",
    )
    curves = [Curve(name, [(float(n), value) for n, value in found.items()]) for name, found in mean.items()]
    judged = ((low, high), interval(attention), interval(apart))
    return Result(
        verdict_of(*judged),
        text,
        statistics.fmean(recurrent),
        (low, high),
        Control(Bilingual("no gain", "没有增益"), 0.0),
        Check(
            Bilingual("no tested sentence was read before", "测试句在预训练中没有出现"),
            not reviews.sentences & reviews.tested,
        ),
        condition=Bilingual("little means less than GPT and BERT gain", "“有限”仅指少于 GPT 与 BERT 的增益"),
        chart=Chart(
            Bilingual("Accuracy gained by pre-training", "预训练带来的正确率增益"),
            Bilingual("labels", "标签数"),
            Bilingual("gain", "增益"),
            curves,
            log_x=True,
        ),
        rows=[
            {
                "family": name,
                "parameters": size_of(_model(name, len(reviews.words) + 1)),
                "scratch": scratch[name],
                "gain": mean[name],
            }
            for name in FAMILIES
        ],
        figures=judged,
    )


def verdict_of(recurrent: Interval, attention: Interval, apart: Interval) -> Verdict:
    """Return the verdict of the gains of LSTM and GRU, of GPT and BERT, and of the latter minus the former."""
    if attention[0] > 0 and apart[0] > 0:
        return "holds if" if recurrent[0] > 0 else "holds" if recurrent[1] < LITTLE else "not shown"
    return "does not hold" if recurrent[0] > 0 and apart[1] < LITTLE else "not shown"


def _of(gains: dict[str, list[dict[int, tuple[float, float]]]], names: tuple[str, ...]) -> list[float]:
    """Return the mean gain of some families over all numbers of labels, by seed."""
    rows = zip(*(gains[name] for name in names), strict=True)
    return [statistics.fmean(gain for one in row for _, gain in one.values()) for row in rows]


def _model(name: str, symbols: int) -> Model:
    width, layers = FAMILIES[name]
    if name == "bert":
        return MaskedModel(
            vocab_size=symbols, width=width, layers=layers, heads=2, max_length=LONGEST, norm="pre", dropout=0.0
        )
    family = "transformer" if name == "gpt" else name
    return LanguageModel(family, symbols, width=width, layers=layers, heads=2)


def _gains(name: str, reviews: Reviews, seed: int, updates: int, tuning: int) -> dict[int, tuple[float, float]]:
    """Return by the number of labels: the accuracy with new weights, and what pre-training adds to it."""
    torch.manual_seed(seed)
    new, read = (_model(name, len(reviews.words) + 1) for _ in range(2))
    read.load_state_dict(new.state_dict())
    fit(read, lambda: _loss(read, reviews), updates, RATE)
    found = {}
    for count in LABELS:
        order = torch.randperm(len(reviews.known[2]))[:count]
        scratch, tuned = (_accuracy(model, reviews, order, seed, tuning) for model in (new, read))
        found[count] = scratch, tuned - scratch
    return found


def _loss(model: Model, reviews: Reviews) -> Tensor:
    """Return the loss of drawn reviews: of every next word, or of hidden ones."""
    rows = torch.randint(READ, (32,))
    ids, valid = (part[rows] for part in reviews.read)
    if isinstance(model, LanguageModel):
        logits = model(ids[:, :-1], valid=valid[:, :-1])[0]
        return F.cross_entropy(logits[valid[:, 1:]], ids[:, 1:][valid[:, 1:]])
    is_hidden = (torch.rand(ids.shape) < 0.2) & valid
    is_hidden[:, 0] = True
    logits = model(ids.masked_fill(is_hidden, 0), valid=valid)[0]
    return F.cross_entropy(logits[is_hidden], ids[is_hidden])


def _accuracy(parent: Model, reviews: Reviews, order: Tensor, seed: int, updates: int) -> float:
    """Fine-tune a classifier that begins from a model's layers; return its accuracy on the test sentences."""
    torch.manual_seed(seed)
    model = Classifier(_model_like(parent), labels=2, pooling="mean" if isinstance(parent, MaskedModel) else "last")
    model.adopt(parent)
    ids, valid, labels = (part[order] for part in reviews.known)

    def loss() -> Tensor:
        at = torch.randint(len(ids), (min(len(ids), 32),))
        return F.cross_entropy(model.classify(ids[at], valid[at]), labels[at])

    fit(model, loss, updates, RATE / 2)
    tested, mask, right = reviews.test
    with torch.no_grad():
        return float((model.eval().classify(tested, mask).argmax(1) == right).float().mean())


def _model_like(parent: Model) -> Model:
    """Return a new model of a parent's config, whose weights are its own."""
    return MaskedModel(parent.config) if isinstance(parent, MaskedModel) else LanguageModel(parent.config)
