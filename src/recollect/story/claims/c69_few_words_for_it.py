"""C69: To understand "it" a few words of the sentence are enough.

中文：理解“it”的含义，往往只需要句中的几个词。
Seed: 003_d30a3ba1164faeec.txt:193
Budget: minutes
Expected: attention that resolves "it" is as often right where it may read only its four most attended words, and each head's entropy there is at most 1 bit, that is about two words; a GRU, which reads all, is right as often
预期：能确定“it”所指的注意力，只许读取权重最大的四个词时正确率不变，每个头在此处的熵不超过 1 比特，即约两个词；读完全句的 GRU 正确率相同
Rule: with the accuracy on new sentences where "it" may read only its four most attended words, and the heads' mean entropy at "it": holds if the interval of accuracy is above 0.95 and that of entropy below 1 bit; holds if … (each head may spread over more than two words) where the former, and entropy is above 1 bit; does not hold if the accuracy with four words is below 0.8 and with all words above 0.95; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.record import record
from recollect.data.synthetic.match_generators import ANIMALS, HOLES, THINGS, pronouns
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.multi_head import MultiHead
from recollect.layers.attention.score import ScaledDot
from recollect.layers.pointwise import Embedding, FeedForward
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.sentences import as_ids, numbers_of
from recollect.views.bilingual import Bilingual

NOUNS = tuple(dict.fromkeys((*THINGS, *HOLES, *ANIMALS)))
COUNT, TRAINED, WIDTH, HEADS, FEW = 3000, 2600, 64, 4, 4
Found = Mapping[str, float]


class Hop(nn.Module):
    """Attention from "it" to the words, and a feed-forward network, each added to what is known of "it"."""

    def __init__(self) -> None:
        super().__init__()
        heads = [Attend(ScaledDot(WIDTH // HEADS, WIDTH // HEADS)) for _ in range(HEADS)]
        self.attend, self.mix = MultiHead(WIDTH, heads), FeedForward(WIDTH)

    def forward(self, it: Tensor, words: Tensor, valid: Tensor, kept: Tensor | None) -> Tensor:
        """Return the new vector of "it" (B, 1, D); with `kept` (B, T) it may read only these words."""
        source = self.attend.remember(words, valid)
        it = it + self.attend(it, source if kept is None else replace(source, valid=kept))
        return it + self.mix.map(it)


class Resolver(nn.Module):
    """Two hops from "it" to the words of the sentence, then a linear map to the noun: logits (B, nouns)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding, self.positions = Embedding(words, WIDTH), Positions(WIDTH)
        nn.init.normal_(self.embedding.table.weight, std=0.3)
        self.first, self.second = Hop(), Hop()
        self.out = nn.Linear(WIDTH, len(NOUNS))

    def forward(self, ids: Tensor, valid: Tensor, it: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return the logits; with `kept` (B, T) "it" may read only these words."""
        x = self.positions(self.embedding.map(ids), valid=valid)[0]
        here = x[torch.arange(len(x)), it][:, None]  # (B, 1, D)
        for hop in (self.first, self.second):
            here = hop(here, x, valid, kept)
        return self.out(here)[:, 0]


class Reader(nn.Module):
    """A GRU that reads the whole sentence: logits (B, nouns)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding, self.cell = Embedding(words, WIDTH), GRU(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, len(NOUNS))

    def forward(self, ids: Tensor, valid: Tensor, it: Tensor) -> Tensor:
        """Return the logits after the last word; where "it" stands is not used."""
        return self.out(self.cell(self.embedding.map(ids), valid=valid)[1].hidden)


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 1500
    measured = [_measure(seed, updates) for seed in range(budget.seeds)]
    mean = {name: statistics.fmean(found[name] for found in measured) for name in measured[0]}
    few, every, bits = (interval([found[name] for found in measured]) for name in ("few", "all", "bits"))
    found = Bilingual(
        f"Right with the {FEW} most attended of {mean['words']:.1f} words {mean['few']:.1%} [{few[0]:.1%}, {few[1]:.1%}], with all {mean['all']:.1%}, with {FEW} words "
        f"drawn at random {mean['random']:.1%}; a GRU {mean['gru']:.1%}. The entropy of a head at “it” is {mean['bits']:.2f} bits [{bits[0]:.2f}, {bits[1]:.2f}].",
        f"只读权重最大的 {FEW} 个词（全句平均 {mean['words']:.1f} 个）时正确率 {mean['few']:.1%} [{few[0]:.1%}, {few[1]:.1%}]，读全句 {mean['all']:.1%}，"
        f"随机取 {FEW} 个词 {mean['random']:.1%}；GRU {mean['gru']:.1%}。一个头在“it”处的熵为 {mean['bits']:.2f} 比特 [{bits[0]:.2f}, {bits[1]:.2f}]。",
    )
    figures = (few, every, bits)
    return Result(
        verdict_of(*figures),
        found,
        mean["few"],
        few,
        Control(Bilingual("always the first noun", "总是第一个名词"), mean["first"]),
        Check(
            Bilingual("with another sentence's answer it is at chance", "换成别的句子的答案时处于随机水平"),
            mean["shuffled"] < 0.2,
        ),
        condition=Bilingual("each head may spread over more than two words", "每个头可以分散到两个以上的词"),
        rows=measured,
        figures=figures,
    )


def verdict_of(few: tuple[float, float], every: tuple[float, float], bits: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of accuracy with few words and with all, and of entropy in bits."""
    if few[0] > 0.95:
        return "holds" if bits[1] < 1 else "holds if" if bits[0] > 1 else "not shown"
    return "does not hold" if few[1] < 0.8 and every[0] > 0.95 else "not shown"


def _measure(seed: int, updates: int) -> Found:
    """Train attention and a GRU on sentences with "it"; return their accuracies on new ones, and bits of entropy."""
    made = [(one.texts[0].split(), str(one.answer)) for one in pronouns(count=COUNT, seed=seed)]
    numbers = numbers_of(words for words, _ in made)
    ids, valid = as_ids([words for words, _ in made], numbers)
    it = torch.tensor([words.index("it") for words, _ in made])
    answer = torch.tensor([NOUNS.index(noun) for _, noun in made])
    first = torch.tensor([NOUNS.index(next(word for word in words if word in NOUNS)) for words, _ in made])[TRAINED:]
    torch.manual_seed(seed)
    resolver, reader = Resolver(len(numbers)), Reader(len(numbers))
    for model in (resolver, reader):

        def loss(model: nn.Module = model) -> Tensor:
            rows = torch.randint(TRAINED, (64,))
            return F.cross_entropy(model(ids[rows], valid[rows], it[rows]), answer[rows])

        fit(model, loss, updates, rate=5e-3, enough=0.02)
    given = (ids[TRAINED:], valid[TRAINED:], it[TRAINED:])
    right = answer[TRAINED:]
    with torch.no_grad(), record(resolver) as seen:
        said = resolver(*given).argmax(1)
    weights = torch.cat([seen[f"{hop}.attend.weights"][:, :, 0] for hop in ("first", "second")], 1)  # (B, N, S)
    with torch.no_grad():
        few = resolver(*given, kept=_highest(weights.mean(1))).argmax(1)
        drawn = resolver(*given, kept=_highest(torch.rand(given[1].shape) * given[1])).argmax(1)
        by_gru = reader(*given).argmax(1)
    answers = {"few": few, "all": said, "random": drawn, "gru": by_gru, "first": first, "shuffled": said.roll(1)}
    shares = {name: float((one == right).float().mean()) for name, one in answers.items()}
    bits = -(weights * weights.clamp(min=1e-12).log2()).sum(2).mean()
    return {**shares, "bits": float(bits), "words": float(given[1].sum(1).float().mean())}


def _highest(scores: Tensor) -> Tensor:
    """Return which are the few highest of each row, as bool."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, scores.topk(FEW, 1).indices, True)
