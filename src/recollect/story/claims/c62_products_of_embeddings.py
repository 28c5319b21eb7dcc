"""C62: A verb and its subject have a high dot product, while an article such as "the" has none with any word.

中文：动词与其主语的点积较高，而“the”这样的冠词与任何词的点积都不大。
Seed: 001_9b45f3fd679b11ad.txt:59
Budget: seconds
Expected: trained where the answer needs subject and verb, their embeddings have a larger dot product than verb and article; whether the article has the smallest with all others is reported
预期：若答案取决于主语与动词，训练后二者嵌入的点积大于动词与冠词的点积；冠词与其他词的点积是否最小，如实报告
Rule: holds if the interval of verb · subject minus verb · article is above 0 and the article's mean dot product with other words is the smallest in every seed; holds if … (the task needs the pair) where only the former; does not hold if the interval is below 0; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.layers.attention.self_attention import BasicSelfAttention
from recollect.layers.pointwise import Embedding, FeedForward, Linear
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

KINDS, WIDTH = 6, 16  # subjects, verbs and places; of the embeddings
THE, ON = 0, 1
GROUPS = {"subject": 2, "verb": 2 + KINDS, "place": 2 + 2 * KINDS}
VERB_AT, ROWS = 2, 2000
Products = Mapping[str, float]


def run(budget: Budget) -> Result:
    measured = [_products(seed, 5 if budget.is_small else 300) for seed in range(budget.seeds)]
    gains = [found["verb · subject"] - found["verb · the"] for found in measured]
    low, high = interval(gains)
    mean = {name: statistics.fmean(found[name] for found in measured) for name in measured[0]}
    lowest = [_lowest(found) for found in measured]
    found = Bilingual(
        f"After training ({mean['accuracy']:.0%} right) verb · subject is {mean['verb · subject']:.2f}, verb · the {mean['verb · the']:.2f}, verb · place "
        f"{mean['verb · place']:.2f}; “the” has the smallest mean dot product with the others in {lowest.count('the')} of {len(lowest)} seeds.",
        f"训练后（正确率 {mean['accuracy']:.0%}）：动词 · 主语 {mean['verb · subject']:.2f}，动词 · the {mean['verb · the']:.2f}，动词 · 地点 "
        f"{mean['verb · place']:.2f}；“the”与其他词的平均点积最小的有 {lowest.count('the')} 个种子（共 {len(lowest)} 个）。",
    )
    check = Check(
        Bilingual("with another sentence's answer it is at chance", "换成别的句子的答案时处于随机水平"),
        abs(mean["shuffled"] - 0.5) < 0.05,
    )
    return Result(
        verdict_of(low, high, all(name == "the" for name in lowest)),
        found,
        statistics.fmean(gains),
        (low, high),
        Control(Bilingual("untrained embeddings", "未训练的嵌入"), mean["untrained"]),
        check,
        condition=Bilingual(
            "the task needs this pair; the smallest is not always the article",
            "任务需要这一对词；点积最小的不一定是冠词",
        ),
        rows=measured,
    )


def verdict_of(low: float, high: float, is_lowest: bool) -> Verdict:
    """Return the verdict of the interval of verb · subject minus verb · article, and of whether the article is lowest."""
    if low > 0:
        return "holds" if is_lowest else "holds if"
    return "does not hold" if high < 0 else "not shown"


def _lowest(found: Products) -> str:
    """Return the kind of word with the smallest mean dot product with the others."""
    return min(("the", "on", *GROUPS), key=lambda name: found[f"mean of {name}"])


def _products(seed: int, updates: int) -> Products:
    """Train on "the SUBJECT VERB on the PLACE", whose answer depends on subject and verb; return dot products."""
    torch.manual_seed(seed)
    answers = (torch.randperm(KINDS**2) % 2).view(KINDS, KINDS)  # of each subject with each verb
    words = Embedding(2 + 3 * KINDS, WIDTH)
    nn.init.normal_(words.table.weight, std=WIDTH**-0.5)
    model = Stack(words, BasicSelfAttention(WIDTH, causal=False), FeedForward(WIDTH), Linear(WIDTH, 2))
    before = _between(words)
    fit(model, lambda: _loss(model, *_draw(64, answers)), updates, rate=0.02)
    ids, answer = _draw(ROWS, answers)
    with torch.no_grad():
        said = model(ids)[0][:, VERB_AT].argmax(1)
    rest = {
        "untrained": before["verb · subject"] - before["verb · the"],
        "accuracy": float((said == answer).float().mean()),
        "shuffled": float((said == answers.flatten()[torch.randint(KINDS**2, (ROWS,))]).float().mean()),
    }
    return {**_between(words), **rest}


def _draw(rows: int, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Return sentences (B, 6) and their answers (B,)."""
    subject, verb, place = torch.randint(KINDS, (3, rows))
    the, on = (torch.full((rows,), word) for word in (THE, ON))
    words = (the, GROUPS["subject"] + subject, GROUPS["verb"] + verb, on, the, GROUPS["place"] + place)
    return torch.stack(words, 1), answers[subject, verb]


def _loss(model: Stack, ids: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(model(ids)[0][:, VERB_AT], answer)


@torch.no_grad()
def _between(words: Embedding) -> Products:
    """Return mean dot products between the kinds of words, and of each kind with all other words."""
    vectors = words.table.weight
    products = vectors @ vectors.T
    kinds = {"the": [THE], "on": [ON], **{name: list(range(at, at + KINDS)) for name, at in GROUPS.items()}}
    found = {
        f"verb · {name}": float(products[kinds["verb"]][:, ids].mean()) for name, ids in kinds.items() if name != "verb"
    }
    products.fill_diagonal_(0)
    means = products.sum(1) / (len(vectors) - 1)
    return {**found, **{f"mean of {name}": float(means[ids].mean()) for name, ids in kinds.items()}}
