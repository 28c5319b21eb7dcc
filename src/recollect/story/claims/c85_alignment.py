"""C85: Attention between source and target aligns the two.

中文：源序列与目标序列之间的注意力会对齐两者。
Seed: 000_56d5b8bda4e4cf77.txt:203
Budget: minutes
Expected: trained to translate and never shown a link, attention has its largest weight on the word that a target word comes from: an alignment error rate below 0.34, that of Luong et al. (2015), on new sentences, and less than half of the diagonal's
预期：只学翻译、从未见过对齐标注，注意力的最大权重落在目标词对应的源词上：新句子上的对齐错误率低于 Luong 等（2015）的 0.34，且不到对角线的一半
Rule: with the alignment error rate of target words that have a link: holds if its interval is below 0.34 and below half of the diagonal's; does not hold if it is above the diagonal's; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from recollect.data.synthetic.grammar import Aligned
from recollect.evaluation.alignment_error import alignment_error_rate
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.story.small_translation import taught
from recollect.views.bilingual import Bilingual

LUONG = 0.34  # alignment error rate of attention in Luong et al. 2015, English to German


def run(budget: Budget) -> Result:
    measured = [_errors(seed, 3 if budget.is_small else 200) for seed in range(budget.seeds)]
    mean = {name: statistics.fmean(found[name] for found in measured) for name in measured[0]}
    low, high = interval([found["attention"] for found in measured])
    found = Bilingual(
        f"Alignment error rate of attention {mean['attention']:.3f} [{low:.3f}, {high:.3f}], of the diagonal {mean['diagonal']:.3f}, before training "
        f"{mean['untrained']:.3f}; {mean['translated']:.0%} of new sentences are translated exactly.",
        f"对齐错误率：注意力 {mean['attention']:.3f} [{low:.3f}, {high:.3f}]，对角线 {mean['diagonal']:.3f}，训练前 {mean['untrained']:.3f}；新句子完全译对 {mean['translated']:.0%}。",
    )
    return Result(
        verdict_of((low, high), mean["diagonal"]),
        found,
        mean["attention"],
        (low, high),
        Control(Bilingual("the diagonal", "对角线"), mean["diagonal"]),
        Check(
            Bilingual("with another sentence's links at least half are wrong", "换成别的句子的对齐时至少一半出错"),
            mean["shuffled"] > 0.5,
        ),
        rows=measured,
    )


def verdict_of(attention: tuple[float, float], diagonal: float) -> Verdict:
    """Return the verdict of the interval of the alignment error rate, beside that of the diagonal."""
    if attention[1] < min(LUONG, diagonal / 2):
        return "holds"
    return "does not hold" if attention[0] > diagonal else "not shown"


def _errors(seed: int, updates: int) -> Mapping[str, float]:
    """Return error rates on new sentences: of attention, the diagonal, before training, with others' links."""
    learned = taught(seed, updates)
    sentences = learned.held_out
    weights = learned.weights(sentences)  # (B, T, S)
    links = _links(sentences, weights)
    others = _links([*sentences[1:], sentences[0]], weights)
    said = learned.translate([one.source for one in sentences])
    exact = [tuple(words) == one.target[:-1] for words, one in zip(said, sentences, strict=True)]
    before = taught(seed, 0)
    return {
        "attention": _rate(weights, links),
        "diagonal": _rate(_diagonal(sentences, weights), links),
        "untrained": _rate(before.weights(sentences), links),
        "shuffled": _rate(weights, others & links.any(2, keepdim=True)),
        "translated": statistics.fmean(exact),
    }


def _rate(weights: Tensor, links: Tensor) -> float:
    """Return the error rate; target words without a link have no right answer, and are left out."""
    return alignment_error_rate(weights * links.any(2, keepdim=True), links)


def _links(sentences: Sequence[Aligned], weights: Tensor) -> Tensor:
    found = torch.zeros(weights.shape, dtype=torch.bool)
    for row, one in zip(found, sentences, strict=True):
        for source, target in one.links:
            row[target, source] = True
    return found


def _diagonal(sentences: Sequence[Aligned], weights: Tensor) -> Tensor:
    """Return weight 1 on the source word at the same share of the sentence."""
    found = torch.zeros_like(weights)
    for row, one in zip(found, sentences, strict=True):
        step = (len(one.source) - 1) / (len(one.target) - 1)
        for place in range(len(one.target)):
            row[place, round(place * step)] = 1
    return found
