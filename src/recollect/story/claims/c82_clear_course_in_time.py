"""C82: An RNN has a clear course in time, so its decisions are easier to interpret than a Transformer's.

中文：RNN 有清晰的时间流，因此比 Transformer 更容易解释其决策。
Seed: 004_87792308dac9c34b.txt:93, 004_87792308dac9c34b.txt:95
Budget: minutes
Expected: contested: the same explanation, gradient times input, is tested on an LSTM and on a Transformer of as many parameters that are equally right; no winner on all measures
预期：有争议：对参数量与正确率相当的 LSTM 与 Transformer 用同一种解释方法（梯度 × 输入）检验；没有哪一个在所有指标上都胜出
Rule: with the intervals of LSTM minus Transformer, of how much the probability falls without the two words that are ranked first, more than it falls with these alone (faithfulness), and of how often both are those that decide (plausibility): holds if both are above 0; does not hold if one is below 0; else not shown; not shown too where accuracy differs by more than 0.03
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.padding import pad
from recollect.core.record import record
from recollect.data.synthetic.label_generators import BAD, GOOD, kindness
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Embedding
from recollect.layers.positions import Positions
from recollect.layers.recurrent.lstm import LSTM
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit, size_of
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

COUNT, HELD_OUT, WIDTH, TOP = 2500, 400, 32, 2
NEGATIONS = ("not", "never")
FAMILIES = ("lstm", "transformer")
Batch = tuple[Tensor, Tensor, Tensor]  # ids (B, T), valid (B, T), labels (B,)
Interval = tuple[float, float]


class Judge(nn.Module):
    """Vectors of words to the mean of a layer's outputs, and to two scores."""

    def __init__(self, family: str, words: int) -> None:
        super().__init__()
        self.embedding = Embedding(words, WIDTH)
        blocks = [Block(SelfAttention(WIDTH, 2, causal=False))]
        self.body = Stack(LSTM(WIDTH, 40)) if family == "lstm" else Stack(Positions(WIDTH), *blocks)
        self.out = nn.Linear(self.body.width_out, 2)

    def forward(self, vectors: Tensor, valid: Tensor) -> Tensor:
        """Return the scores (B, 2) of vectors (B, T, D)."""
        steps = self.body(vectors, valid=valid)[0]
        return self.out(steps.sum(1) / valid.sum(1, keepdim=True).clamp(min=1))

    def share(self, ids: Tensor, valid: Tensor, label: Tensor) -> Tensor:
        """Return the probability (B,) of a label for each row."""
        return self(self.embedding.map(ids), valid).softmax(1).gather(1, label[:, None])[:, 0]


def run(budget: Budget) -> Result:
    sentences, words = _sentences()
    updates = 2 if budget.is_small else 300
    seeds = range(budget.seeds)
    found = {
        name: [_measured(name, sentences, len(words), words, seed, updates) for seed in seeds] for name in FAMILIES
    }
    mean = {name: {k: statistics.fmean(one[k] for one in rows) for k in rows[0]} for name, rows in found.items()}
    faithful, plausible = (_difference(found, f"gradient × input {measure}") for measure in ("faithful", "plausible"))
    lstm, other = mean["lstm"], mean["transformer"]
    shown = {
        name: f"{one['gradient × input faithful']:.2f}, {one['gradient × input plausible']:.0%}"
        for name, one in mean.items()
    }
    text = Bilingual(
        f"Faithfulness and plausibility of gradient × input: LSTM {shown['lstm']}, Transformer {shown['transformer']} (random words {lstm['random faithful']:.2f}, {lstm['random plausible']:.0%}; the Transformer's attention "
        f"{other['attention faithful']:.2f}, {other['attention plausible']:.0%}); accuracy {lstm['accuracy']:.1%} and {other['accuracy']:.1%}.",
        f"梯度 × 输入的忠实度与合理度：LSTM {shown['lstm']}，Transformer {shown['transformer']}（随机选词 {lstm['random faithful']:.2f}, {lstm['random plausible']:.0%}；Transformer 的注意力 "
        f"{other['attention faithful']:.2f}, {other['attention plausible']:.0%}）；正确率 {lstm['accuracy']:.1%} 与 {other['accuracy']:.1%}。",
    )
    return Result(
        verdict_of(interval(faithful), interval(plausible), abs(lstm["accuracy"] - other["accuracy"])),
        text,
        statistics.fmean(faithful),
        interval(faithful),
        Control(Bilingual("random words, LSTM", "随机选词，LSTM"), lstm["random faithful"]),
        Check(
            Bilingual("no sentence is in both parts", "没有句子同时出现在两部分中"),
            not {tuple(one) for one, _ in sentences[:-HELD_OUT]} & {tuple(one) for one, _ in sentences[-HELD_OUT:]},
        ),
        rows=[{"family": name, "parameters": size_of(Judge(name, len(words))), **one} for name, one in mean.items()],
    )


def verdict_of(faithful: Interval, plausible: Interval, apart: float) -> Verdict:
    """Return the verdict of LSTM minus Transformer on both measures, and of how far their accuracies are apart."""
    if apart > 0.03:
        return "not shown"
    if faithful[1] < 0 or plausible[1] < 0:
        return "does not hold"
    return "holds" if faithful[0] > 0 and plausible[0] > 0 else "not shown"


def _difference(found: dict[str, list[dict[str, float]]], name: str) -> list[float]:
    return [one[name] - other[name] for one, other in zip(found["lstm"], found["transformer"], strict=True)]


def _sentences() -> tuple[list[tuple[list[str], str]], dict[str, int]]:
    """Return sentences, with their labels, and the number of each word."""
    pairs = [(text.split(), label) for text, label in kindness(count=COUNT)]
    words = sorted({word for text, _ in pairs for word in text})
    return pairs, {word: number for number, word in enumerate(words)}


def _batch(pairs: Sequence[tuple[list[str], str]], words: dict[str, int]) -> Batch:
    ids, valid = pad([[words[word] for word in text] for text, _ in pairs])
    return ids, valid, torch.tensor([int(label == "kind") for _, label in pairs])


def _measured(
    family: str, sentences: list[tuple[list[str], str]], size: int, words: dict[str, int], seed: int, updates: int
) -> dict[str, float]:
    """Train one model; return its accuracy, and both measures of each method of explanation."""
    torch.manual_seed(seed)
    model = Judge(family, size)
    ids, valid, label = _batch(sentences[:-HELD_OUT], words)

    def loss() -> Tensor:
        at = torch.randint(len(ids), (64,))
        return F.cross_entropy(model(model.embedding.map(ids[at]), valid[at]), label[at])

    fit(model, loss, updates, rate=0.01)
    test = _batch(sentences[-HELD_OUT:], words)
    deciding = _deciding(sentences[-HELD_OUT:], test[0].shape[1])
    with torch.no_grad():
        said = model(model.embedding.map(test[0]), test[1]).argmax(1)
    found = {"accuracy": float((said == test[2]).float().mean())}
    for name, rank in _rankings(model).items():
        top = rank(test[0], test[1], said).masked_fill(~test[1], -torch.inf).topk(TOP, 1).indices
        found[f"{name} faithful"] = _faithful(model, test[0], test[1], said, top)
        both = deciding.gather(1, top).all(1)
        found[f"{name} plausible"] = float(both[deciding.sum(1) == TOP].float().mean())
    return found


def _deciding(pairs: Sequence[tuple[list[str], str]], steps: int) -> Tensor:
    """Return where (B, T) the words are that decide: the adjective, and the negation between it and "was"."""
    found = torch.zeros(len(pairs), steps, dtype=torch.bool)
    for row, (text, _) in zip(found, pairs, strict=True):
        was = max(i for i, word in enumerate(text) if word == "was")
        row[next(i for i in range(was, len(text)) if text[i] in (*GOOD, *BAD))] = True
        row[was + 1] |= text[was + 1] in NEGATIONS
    return found


def _rankings(model: Judge) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Return the methods, each from ids, valid and the labels that were predicted to a weight of every word (B, T)."""

    def gradient(ids: Tensor, valid: Tensor, said: Tensor) -> Tensor:
        vectors = model.embedding.map(ids).detach().requires_grad_()
        scores = model(vectors, valid)
        margin = scores.gather(1, said[:, None]) - scores.gather(1, 1 - said[:, None])
        (slope,) = torch.autograd.grad(margin.sum(), vectors)
        return (slope * vectors).sum(2).abs().detach()

    @torch.no_grad()
    def attention(ids: Tensor, valid: Tensor, said: Tensor) -> Tensor:
        with record(model.body) as inner:
            model(model.embedding.map(ids), valid)
        weights = next(value for name, value in inner.items() if name.endswith("weights"))  # (B, N, T, S)
        return (weights.mean(1) * valid[:, :, None]).sum(1)

    found = {"gradient × input": gradient, "random": lambda ids, valid, said: torch.rand(ids.shape)}
    return found | ({"attention": attention} if len(model.body) > 1 else {})


@torch.no_grad()
def _faithful(model: Judge, ids: Tensor, valid: Tensor, said: Tensor, top: Tensor) -> float:
    """Return how much the probability falls without the first words, minus how much it falls with these alone."""
    is_top = torch.zeros_like(valid).scatter(1, top, True)
    without, alone = (model.share(*_kept(ids, keep), said) for keep in (valid & ~is_top, valid & is_top))
    return float((alone - without).mean())


def _kept(ids: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sentences of the words that are kept, in their order."""
    return pad([row[kept] for row, kept in zip(ids, keep, strict=True)])
