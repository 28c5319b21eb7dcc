"""C16: The network written in numpy learns the sentiment of short phrases.

中文：用 numpy 写的 RNN 能学会判断短句的情感。
Seed: 003_d30a3ba1164faeec.txt:92
Budget: minutes
Expected: on 58 phrases of 16 words, with W_hhᵀ in the backward pass, at least 0.95 of 20 new phrases are right in most seeds where few phrases are negated; where every other one is, good and not say nothing alone, and it may learn by heart; with the published pass, which lacks the transpose, not every seed reaches it
预期：58 个短句、16 个词，反向传播使用 W_hhᵀ：否定句较少时，多数种子在 20 个新短句上至少对 0.95；半数为否定句时，单看 good 或 not 都没有信息，可能只是死记；按公开代码（缺少转置）则不是每个种子都能达到
Rule: of accuracy on new phrases, with a fifth, a third and half of them negated: does not hold if no median with the transpose reaches 0.95; holds if all three do, and each seed as published with a fifth; holds if … (few negations, a corrected backward pass) otherwise
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import numpy as np

from recollect.layers.recurrent.numpy_rnn import Array, NumpyRNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

KIND, UNKIND = ("good", "happy"), ("bad", "sad")
PLAIN, NEGATED = ("", "very"), ("not", "not at all")  # degrees
OPENINGS, ENDINGS = ("", "this is", "this was", "i am", "i was"), ("", "earlier", "right now")
SHARES = (1 / 5, 1 / 3, 1 / 2)  # of negated phrases
TRAINED, NEW = 58, 20  # phrases
EPOCHS, RATE, SMALL_LOSS, SUCCESS = 1000, 0.02, 0.01, 0.95
Phrase = tuple[list[str], int]  # words, and 1 where they are kind


class AsPublished(NumpyRNN):
    """The network with the published backward pass."""

    def one_step_back(self, d_total: Array) -> Array:
        """Return the gradient without the transpose."""
        d_h: Array = self.W_hh @ d_total
        return d_h


def run(budget: Budget) -> Result:
    epochs = 2 if budget.is_small else EPOCHS
    seeds = range(budget.seeds)
    found = {share: [_measure(NumpyRNN, share, seed, epochs) for seed in seeds] for share in SHARES}
    published = [_measure(AsPublished, SHARES[0], seed, epochs)[0] for seed in seeds]
    right = {share: [new for new, _ in runs] for share, runs in found.items()}
    medians = [statistics.median(values) for values in right.values()]
    shown = "; ".join(
        f"{share:.0%}: {', '.join(f'{value:.2f}' for value in values)}" for share, values in right.items()
    )
    as_published = ", ".join(f"{value:.2f}" for value in published)
    words = Bilingual(
        f"Of {NEW} new phrases right, by seed, by the share of negated phrases: {shown}; as published, {SHARES[0]:.0%} negated: {as_published}.",
        f"{NEW} 个新短句的正确率（按种子），按否定句比例：{shown}；按公开代码、否定句 {SHARES[0]:.0%}：{as_published}。",
    )
    parts = [_parts(share, seed) for share in SHARES for seed in seeds]
    shared = [set(map(_text, trained)) & set(map(_text, new)) for trained, new in parts]
    low, high = interval(right[SHARES[0]])
    return Result(
        verdict_of(medians, published),
        words,
        medians[0],
        (low, min(high, 1.0)),
        Control(
            Bilingual("the label of most phrases", "多数标签"), statistics.fmean(_majority(new) for _, new in parts)
        ),
        Check(Bilingual("no new phrase was trained on", "新短句都不在训练集中"), not any(shared)),
        Bilingual("negated phrases are few, and the backward pass has the transpose", "否定句较少，且反向传播使用转置"),
        Chart(
            Bilingual("New phrases right (median)", "新短句的正确率（中位数）"),
            Bilingual("share of negated phrases", "否定句比例"),
            Bilingual("share", "比例"),
            [Curve("with the transpose", list(zip(SHARES, medians, strict=True)))],
        ),
        [
            {"negated": share, "seed": seed, "new": new, "epochs": epoch}
            for share, runs in found.items()
            for seed, (new, epoch) in enumerate(runs)
        ],
    )


def verdict_of(medians: Sequence[float], published: Sequence[float]) -> Verdict:
    """Return the verdict of the median accuracies by the share of negations, and of those by seed as published."""
    if max(medians) < SUCCESS:
        return "does not hold"
    return "holds" if min(*medians, *published) >= SUCCESS else "holds if"


def _parts(share: float, seed: int) -> tuple[list[Phrase], list[Phrase]]:
    """Return the phrases of training and new ones, all different, the same share of both negated."""
    plain, negated = (
        [
            (" ".join((opening, degree, word, ending)).split(), int((word in KIND) != (degree in NEGATED)))
            for opening in OPENINGS
            for degree in degrees
            for word in (*KIND, *UNKIND)
            for ending in ENDINGS
        ]
        for degrees in (PLAIN, NEGATED)
    )
    draw = random.Random(seed)
    draw.shuffle(plain)
    draw.shuffle(negated)
    parts = []
    for count in (TRAINED, NEW):
        few = round(share * count)
        parts.append([*negated[:few], *plain[: count - few]])
        negated, plain = negated[few:], plain[count - few :]
    return parts[0], parts[1]


def _majority(phrases: list[Phrase]) -> float:
    share = statistics.fmean(label for _, label in phrases)
    return max(share, 1 - share)


def _text(phrase: Phrase) -> str:
    return " ".join(phrase[0])


def _measure(kind: type[NumpyRNN], share: float, seed: int, epochs: int) -> tuple[float, int]:
    """Train until the mean loss is small; return accuracy on new phrases, and the epochs."""
    trained, new = _parts(share, seed)
    words = sorted({word for phrase in (*trained, *new) for word in phrase[0]})
    column = {word: np.eye(len(words))[:, [i]] for i, word in enumerate(words)}
    network = kind(len(words), 2, rng=np.random.default_rng(seed))
    order = random.Random(seed)
    lasted = epochs
    for epoch in range(1, epochs + 1):
        order.shuffle(trained)
        loss = statistics.fmean(_update(network, [column[word] for word in phrase], label) for phrase, label in trained)
        if loss < SMALL_LOSS:
            lasted = epoch
            break
    hits = [int(network.forward([column[word] for word in phrase])[0].argmax()) == label for phrase, label in new]
    return statistics.fmean(hits), lasted


def _update(network: NumpyRNN, inputs: list[Array], label: int) -> float:
    """Train on one phrase; return its cross-entropy before."""
    y, _ = network.forward(inputs)
    p = np.exp(y - y.max())
    p /= p.sum()
    loss = -float(np.log(p[label, 0]))
    p[label] -= 1  # ∂loss/∂y
    network.step(network.backward(p), RATE)
    return loss
