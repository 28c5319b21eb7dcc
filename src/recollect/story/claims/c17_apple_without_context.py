"""C17: A network that reads each word alone tags "apple" as whatever it means more often; context decides it.

中文：逐词独立预测的网络只会把“apple”标成训练集中更常见的类别；结合上下文才能判断。
Seed: 003_d30a3ba1164faeec.txt:57
Budget: seconds
Expected: without context the accuracy is exactly the more frequent meaning's; a GRU is right where the evidence stands to the left, and at chance where it stands to the right, which needs both directions
预期：没有上下文时，正确率恰为较常见含义所占的比例；证据在左侧时 GRU 能答对，证据在右侧时为随机水平，需要双向读取
Rule: with the accuracies above the more frequent meaning's: holds if in every seed that of the single word is 0 and the intervals of a GRU's are above 0.25 with evidence to the left and to the right; holds if … (the evidence was read before) where the right one is below 0.1 and that of a bidirectional GRU above 0.25; does not hold if the single word's is above 0.05 in every seed; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.data.synthetic.label_generators import apple
from recollect.models.tagging import Tagger
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.sentences import as_ids, numbers_of
from recollect.views.bilingual import Bilingual

WIDTH, COUNT, TRAINED = 16, 800, 500
CASES = {  # the family, per cent of companies, per cent with the evidence to the right of apple
    "alone": ("per-word", 70, 50),
    "left": ("gru", 50, 0),
    "right": ("gru", 50, 100),
    "both": ("bigru", 50, 100),
}
Examples = tuple[Tensor, Tensor, Tensor, Tensor]  # ids (B, T), which are real, the place of apple (B,), company (B,)


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 60
    seeds = range(budget.seeds)
    measured = {name: [_accuracies(name, seed, updates) for seed in seeds] for name in CASES}
    gains = {name: [own - usual for own, usual, _ in rows] for name, rows in measured.items()}
    bounds = {name: interval(values) for name, values in gains.items()}
    mean = {name: statistics.fmean(own for own, _, _ in rows) for name, rows in measured.items()}
    usual = statistics.fmean(most for _, most, _ in measured["alone"])
    shuffled = statistics.fmean(other for _, _, other in measured["both"])
    found = Bilingual(
        f"The word alone {mean['alone']:.1%}, the more frequent meaning {usual:.1%}; a GRU with evidence to the left {mean['left']:.1%}, to the right "
        f"{mean['right']:.1%}, in both directions {mean['both']:.1%}.",
        f"只看该词 {mean['alone']:.1%}，较常见含义占 {usual:.1%}；GRU：证据在左侧 {mean['left']:.1%}，证据在右侧 {mean['right']:.1%}，双向读取 {mean['both']:.1%}。",
    )
    return Result(
        verdict_of(gains["alone"], bounds["left"], bounds["right"], bounds["both"]),
        found,
        statistics.fmean(gains["left"]),
        bounds["left"],
        Control(Bilingual("the more frequent meaning", "较常见的含义"), 0.0),
        Check(
            Bilingual("with another sentence's tag it is at chance", "换成别的句子的标签时处于随机水平"),
            abs(shuffled - 0.5) < 0.05,
        ),
        condition=Bilingual(
            "the evidence was read before the word; evidence behind it needs both directions",
            "证据在该词之前已经读到；位于其后的证据需要双向读取",
        ),
        rows=[{"case": name, "accuracy": mean[name], "above usual": statistics.fmean(gains[name])} for name in CASES],
    )


def verdict_of(
    alone: Sequence[float], left: tuple[float, float], right: tuple[float, float], both: tuple[float, float]
) -> Verdict:
    """Return the verdict of accuracies above the more frequent meaning's: each seed's of the word alone, intervals."""
    if min(alone) > 0.05:
        return "does not hold"
    if any(abs(gain) > 1e-6 for gain in alone) or left[0] <= 0.25:
        return "not shown"
    if right[0] > 0.25:
        return "holds"
    return "holds if" if right[1] < 0.1 and both[0] > 0.25 else "not shown"


def _accuracies(name: str, seed: int, updates: int) -> tuple[float, float, float]:
    """Return the shares of new sentences that are right, that have the usual tag, and right for another sentence."""
    family, share, right = CASES[name]
    (ids, valid, place, answer), count = _examples(share, right, seed)
    torch.manual_seed(seed)
    model = Tagger(family, labels=2, vocab_size=count, width=WIDTH)

    def scores(rows: Tensor | slice) -> Tensor:
        every = model(ids[rows], valid=valid[rows])[0]
        return every[torch.arange(len(every)), place[rows]]

    def loss() -> Tensor:
        rows = torch.randint(TRAINED, (32,))
        return F.cross_entropy(scores(rows), answer[rows])

    fit(model, loss, updates, rate=0.02)
    with torch.no_grad():
        said = scores(slice(TRAINED, None)).argmax(1)
    right_tag = answer[TRAINED:]
    usual = answer[:TRAINED].mode().values
    return tuple(float((one == right_tag).float().mean()) for one in (said, usual, said.roll(1)))  # type: ignore[return-value]


def _examples(share: int, right: int, seed: int) -> tuple[Examples, int]:
    """Return sentences about apples, no two alike, and how many words there are."""
    made = list(apple(share=share, right=right, count=COUNT, seed=seed))
    numbers = numbers_of(words for words, _ in made)
    ids, valid = as_ids([words for words, _ in made], numbers)
    place = torch.tensor([words.index("apple") for words, _ in made])
    answer = torch.tensor([int("company" in tags) for _, tags in made])
    return (ids, valid, place, answer), len(numbers)
