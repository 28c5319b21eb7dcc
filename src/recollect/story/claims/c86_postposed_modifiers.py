"""C86: An RNN orders words strictly one after the other, so it is poor at modifiers that follow their noun.

中文：RNN 严格按先后顺序处理词，因此处理不好定语后置、从句等后置修饰。
Seed: 000_56d5b8bda4e4cf77.txt:123
Budget: seconds
Expected: which sense a noun has (magazine: 弹匣 or 杂志) is decided by words behind it, often after a relative clause: asked at the noun, a GRU is at chance, and so is a causal Transformer; asked at the end of the sentence, or read in both directions, it is right
预期：名词的词义（magazine：弹匣或杂志）由其后的词决定，中间常隔着定语从句：在名词处提问，GRU 处于随机水平，因果 Transformer 也一样；在句末提问，或双向读入，则能答对
Rule: with accuracy on sentences in which a relative clause lies between: holds if the interval of the GRU's, asked at the end, is below 0.75 while that of a Transformer encoder at the noun is above 0.9; does not hold if it is above 0.9 and so is that at the noun; holds if … (asked at the noun) where it is above 0.9 at the end and below 0.6 at the noun; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Bidirectional, Stack
from recollect.core.padding import pad
from recollect.core.types import AnyLayer
from recollect.data.synthetic.grammar import NOUNS, Aligned, aligned_grammar
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

COUNT, HELD_OUT, WIDTH, ROWS = 4000, 1000, 24, 32
FAMILIES = {"gru": "GRU", "bigru": "BiGRU", "causal": "causal Transformer", "encoder": "Transformer encoder"}
IN_CHINESE = {"causal": "因果 Transformer", "encoder": "Transformer 编码器"}
SENSES = {noun: {sense.chinese: number for number, sense in enumerate(pair)} for noun, pair in NOUNS.items()}
Interval = tuple[float, float]
Shares = dict[str, float]


class Examples:
    """Sentences as ids, where their noun stands, which of its two senses it has, and whether a clause follows it."""

    def __init__(self, pairs: list[Aligned], words: dict[str, int]) -> None:
        self.ids, self.valid = pad([[words[word] for word in pair.source] for pair in pairs])
        nouns = [next(i for i, word in enumerate(pair.source) if word in SENSES) for pair in pairs]
        self.noun = torch.tensor(nouns)
        self.end = self.valid.sum(1) - 1
        senses = [
            next(SENSES[pair.source[at]][word] for word in pair.target if word in SENSES[pair.source[at]])
            for pair, at in zip(pairs, nouns, strict=True)
        ]
        self.sense = torch.tensor(senses)
        self.is_far = torch.tensor(["that" in pair.source for pair in pairs])

    def some(self, rows: int) -> tuple[Tensor, ...]:
        """Return a drawn batch: ids, valid, places of the noun and of the end, senses."""
        at = torch.randint(len(self.ids), (rows,))
        return self.ids[at], self.valid[at], self.noun[at], self.end[at], self.sense[at]


def run(budget: Budget) -> Result:
    pairs = list(aligned_grammar(count=COUNT))
    words = {word: number for number, word in enumerate(sorted({word for pair in pairs for word in pair.source}))}
    train, test = Examples(pairs[:-HELD_OUT], words), Examples(pairs[-HELD_OUT:], words)
    updates = 2 if budget.is_small else 100
    names = list(FAMILIES)
    shares = {
        name: [_shares(name, len(words), train, test, seed, updates) for seed in range(budget.seeds)] for name in names
    }
    mean = {name: {k: statistics.fmean(one[k] for one in found) for k in found[0]} for name, found in shares.items()}
    end, noun = (interval([one[place] for one in shares["gru"]]) for place in ("end, far", "noun, far"))
    encoder = interval([one["noun, far"] for one in shares["encoder"]])
    figures = "; ".join(
        f"{FAMILIES[name]} {found['noun, far']:.0%} and {found['end, far']:.0%}" for name, found in mean.items()
    )
    chinese = "；".join(
        f"{IN_CHINESE.get(name, FAMILIES[name])} {found['noun, far']:.0%} 与 {found['end, far']:.0%}"
        for name, found in mean.items()
    )
    found = Bilingual(
        f"Sense of a noun that a relative clause separates from what decides it, asked at the noun and at the end: {figures}. Without the clause the GRU has {mean['gru']['end, near']:.0%} at the end.",
        f"名词与决定其词义的词之间隔着定语从句，分别在名词处与句末提问：{chinese}。没有从句时，GRU 在句末为 {mean['gru']['end, near']:.0%}。",
    )
    blind = max(abs(mean[name]["noun, far"] - 0.5) for name in ("gru", "causal"))
    return Result(
        verdict_of(end, noun, encoder),
        found,
        mean["gru"]["end, far"],
        end,
        Control(Bilingual("the more frequent sense", "较常见的词义"), float(_usual(train, test))),
        Check(
            Bilingual("at the noun, models that read one way are at chance", "在名词处，单向模型处于随机水平"),
            blind < 0.1,
        ),
        condition=Bilingual(
            "the answer is due at the noun, before its modifier has been read; a causal Transformer is no better",
            "须在名词处、读到修饰语之前作答；因果 Transformer 也不更好",
        ),
        rows=[{"family": name, **found} for name, found in mean.items()],
    )


def verdict_of(end: Interval, noun: Interval, encoder: Interval) -> Verdict:
    """Return the verdict of the intervals of the GRU's accuracy at the end and at the noun, and of an encoder's there."""
    if end[1] < 0.75 and encoder[0] > 0.9:
        return "holds"
    if end[0] > 0.9 and noun[0] > 0.9:
        return "does not hold"
    return "holds if" if end[0] > 0.9 and noun[1] < 0.6 else "not shown"


def _usual(train: Examples, test: Examples) -> Tensor:
    return (test.sense == train.sense.mode().values).float().mean()


def _model(family: str, symbols: int) -> Stack:
    """Return a model that reads words and gives two scores at each: of the noun's two senses."""
    layers: dict[str, list[AnyLayer]] = {
        "gru": [GRU(WIDTH, 2 * WIDTH)],
        "bigru": [Bidirectional(GRU(WIDTH, WIDTH), GRU(WIDTH, WIDTH))],
        "causal": _attention(True),
        "encoder": _attention(False),
    }
    above = layers[family][-1].width_out
    return Stack(Embedding(symbols, WIDTH), *layers[family], Linear(above, 2))


def _attention(causal: bool) -> list[AnyLayer]:
    return [Positions(WIDTH), *(Block(SelfAttention(WIDTH, 2, causal=causal)) for _ in range(2))]


def _shares(family: str, symbols: int, train: Examples, test: Examples, seed: int, updates: int) -> Shares:
    """Return the shares of right senses, asked at the noun and at the end, with a clause between and without."""
    torch.manual_seed(seed)
    model = _model(family, symbols)
    fit(model, lambda: _loss(model, *train.some(ROWS)), updates, rate=0.01)
    with torch.no_grad():
        said = model(test.ids, valid=test.valid)[0].argmax(2)
    rows = torch.arange(len(said))
    right = {place: said[rows, at] == test.sense for place, at in (("noun", test.noun), ("end", test.end))}
    return {
        f"{place}, {name}": float(hits[test.is_far == is_far].float().mean())
        for place, hits in right.items()
        for name, is_far in (("far", True), ("near", False))
    }


def _loss(model: Stack, ids: Tensor, valid: Tensor, noun: Tensor, end: Tensor, sense: Tensor) -> Tensor:
    scores = model(ids, valid=valid)[0]
    rows = torch.arange(len(ids))
    return F.cross_entropy(scores[rows, noun], sense) + F.cross_entropy(scores[rows, end], sense)
