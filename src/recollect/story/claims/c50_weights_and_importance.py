"""C50: The attention weight of an input measures how important that input is for the output.

中文：注意力权重衡量每个输入对输出的重要程度。
Seed: 000_56d5b8bda4e4cf77.txt:182, 003_d30a3ba1164faeec.txt:213
Budget: minutes
Expected: where attention weights the words' own vectors, words are ranked by weight nearly as by what leaving them out changes; where it weights states of a recurrent network that has read the whole sentence, the ranks agree weakly, and other weights often give the same label (Jain & Wallace 2019)
预期：注意力直接作用于词向量时，按权重的排序与按去掉该词的影响的排序几乎一致；作用于已读过全句的循环网络状态时，两种排序只有微弱的一致，换成别的权重也常得到相同的类别（Jain 与 Wallace，2019）
Rule: with Kendall's τ between the weights of a sentence's words and the effects of leaving each out: holds if its interval is above 0.5 over words and over recurrent states; holds if … (the words' own vectors are weighted) where above 0.5 over words and below it over states; does not hold if below 0.5 in both; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Bidirectional
from recollect.core.record import record
from recollect.data.synthetic.label_generators import kindness
from recollect.layers.attention.pooling import SelfAttentive
from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.sentences import as_ids, numbers_of
from recollect.views.bilingual import Bilingual

COUNT, TRAINED, ROWS, WIDTH = 1200, 1000, 100, 32
Found = Mapping[str, float]


class AttentiveJudge(nn.Module):
    """One attention over the words, or over states of a bidirectional GRU, and the scores of two labels (B, 2)."""

    def __init__(self, words: int, *, is_recurrent: bool) -> None:
        super().__init__()
        self.embedding = Embedding(words, WIDTH)
        self.encoder = Bidirectional(GRU(WIDTH, WIDTH // 2), GRU(WIDTH, WIDTH // 2)) if is_recurrent else None
        self.pool, self.out = SelfAttentive(WIDTH), nn.Linear(WIDTH, 2)

    def states(self, ids: Tensor, valid: Tensor) -> Tensor:
        """Return the vectors that are weighted (B, T, D)."""
        words = self.embedding.map(ids)
        return words if self.encoder is None else self.encoder(words, valid=valid)[0]

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        """Return the scores."""
        scores: Tensor = self.out(self.pool(self.states(ids, valid), valid)[:, 0])
        return scores


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 150
    found = {
        kind: [_measure(seed, updates, kind == "states") for seed in range(budget.seeds)]
        for kind in ("words", "states")
    }
    words, states = ({name: statistics.fmean(row[name] for row in rows) for name in rows[0]} for rows in found.values())
    first, second = (interval([row["tau"] for row in rows]) for rows in found.values())
    sentence = Bilingual(
        f"Kendall's τ of weights and effects is {words['tau']:.2f} [{first[0]:.2f}, {first[1]:.2f}] over word vectors ({words['right']:.0%} right) and "
        f"{states['tau']:.2f} [{second[0]:.2f}, {second[1]:.2f}] over recurrent states ({states['right']:.0%} right); the most attended word is the one that matters "
        f"most in {words['agree']:.0%} and {states['agree']:.0%} of sentences, by chance {words['chance']:.0%}. With permuted weights {words['permuted']:.0%} and "
        f"{states['permuted']:.0%} of the labels stay.",
        f"权重与影响的 Kendall τ：作用于词向量时 {words['tau']:.2f} [{first[0]:.2f}, {first[1]:.2f}]（正确率 {words['right']:.0%}），作用于循环网络状态时 "
        f"{states['tau']:.2f} [{second[0]:.2f}, {second[1]:.2f}]（正确率 {states['right']:.0%}）；权重最大的词恰为影响最大的词的句子分别占 {words['agree']:.0%} 与 "
        f"{states['agree']:.0%}，随机为 {words['chance']:.0%}。打乱权重后，类别不变的分别为 {words['permuted']:.0%} 与 {states['permuted']:.0%}。",
    )
    return Result(
        verdict_of(first, second),
        sentence,
        states["tau"],
        second,
        Control(Bilingual("weights of another sentence", "别的句子的权重"), states["shuffled"]),
        Check(
            Bilingual("with another sentence's weights they agree less", "换成别的句子的权重时一致程度更低"),
            words["shuffled"] < words["tau"] - 0.2,
        ),
        condition=Bilingual(
            "the words' own vectors are weighted, not states that have read the sentence",
            "加权的是词本身的向量，而不是已读过全句的状态",
        ),
        rows=[{"weighted": "words", **words}, {"weighted": "states", **states}],
    )


def verdict_of(words: tuple[float, float], states: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of τ over word vectors and over recurrent states."""
    if words[0] > 0.5:
        return "holds" if states[0] > 0.5 else "holds if" if states[1] < 0.5 else "not shown"
    return "does not hold" if words[1] < 0.5 and states[1] < 0.5 else "not shown"


def _measure(seed: int, updates: int, is_recurrent: bool) -> Found:
    """Compare weights with the effects of leaving words out, on new sentences without negation."""
    made = [(text.split(), label) for text, label in kindness(negated=0, count=COUNT, seed=seed)]
    numbers = numbers_of(words for words, _ in made)
    ids, valid = as_ids([words for words, _ in made], numbers)
    answer = torch.tensor([int(label == "kind") for _, label in made])
    torch.manual_seed(seed)
    model = AttentiveJudge(len(numbers), is_recurrent=is_recurrent)

    def loss() -> Tensor:
        rows = torch.randint(TRAINED, (32,))
        return F.cross_entropy(model(ids[rows], valid[rows]), answer[rows])

    fit(model, loss, updates, rate=0.01)
    part = slice(TRAINED, TRAINED + ROWS)
    sentences = [words for words, _ in made[part]]
    with torch.no_grad(), record(model) as seen:
        scores = model(ids[part], valid[part]).log_softmax(1)
    weights = seen["pool.attend.weights"][:, 0]  # (B, T)
    with torch.no_grad():
        effects = _effects(model, sentences, numbers, scores)
        permuted = _permuted(model, ids[part], valid[part], weights)
    own, other = (
        [row[: len(words)] for row, words in zip(rows, sentences, strict=True)]
        for rows in (weights, weights.roll(1, 0))
    )
    return {
        "agree": statistics.fmean(map(_agreement, own, effects)),
        "shuffled": statistics.fmean(map(_tau, other, effects)),
        "tau": statistics.fmean(map(_tau, own, effects)),
        "chance": statistics.fmean(1 / len(words) for words in sentences),
        "permuted": float((permuted.argmax(1) == scores.argmax(1)).float().mean()),
        "right": float((scores.argmax(1) == answer[part]).float().mean()),
    }


def _effects(
    model: AttentiveJudge, sentences: Sequence[Sequence[str]], numbers: Mapping[str, int], scores: Tensor
) -> list[Tensor]:
    """Return for each sentence by how much log p of its label changes when each word is left out."""
    shorter = [[*words[:i], *words[i + 1 :]] for words in sentences for i in range(len(words))]
    after = model(*as_ids(shorter, numbers)).log_softmax(1)
    found, at = [], 0
    for words, score in zip(sentences, scores, strict=True):
        label = int(score.argmax())
        found.append((after[at : at + len(words), label] - score[label]).abs())
        at += len(words)
    return found


def _permuted(model: AttentiveJudge, ids: Tensor, valid: Tensor, weights: Tensor) -> Tensor:
    """Return the scores where each sentence's weights are given to its words in another order."""
    states = model.states(ids, valid)
    order = torch.rand(valid.shape).masked_fill(~valid, torch.inf).argsort(1)  # real words first, in random order
    return model.out((weights.gather(1, order)[..., None] * states).sum(1))


def _agreement(one: Tensor, other: Tensor) -> float:
    """Return 1 where the largest of two rows (S,) stand in the same place, else 0."""
    return float(one.argmax() == other.argmax())


def _tau(one: Tensor, other: Tensor) -> float:
    """Return Kendall's τ of two rows (S,)."""
    signs = [(row[:, None] - row).sign() for row in (one, other)]
    return float((signs[0] * signs[1]).sum() / (len(one) * (len(one) - 1)))
