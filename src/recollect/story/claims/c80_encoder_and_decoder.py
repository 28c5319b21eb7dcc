"""C80: BERT is the Transformer's encoder, which fills gaps from both sides; GPT is a decoder, which continues a text.

中文：BERT 是 Transformer 的编码器，利用两侧上下文填空；GPT 是解码器，从左到右续写。
Seed: 004_87792308dac9c34b.txt:57
Budget: seconds
Expected: neither has attention to a source; every output of BERT depends on later words, none of GPT's does; where the word to the right decides the gap, BERT fills it and GPT is at chance
预期：二者都没有对源序列的注意力；BERT 的每个输出都依赖后文，GPT 的都不依赖；若空缺由右侧的词决定，BERT 能填出，GPT 处于随机水平
Rule: holds if the structure is so and the interval of accuracy, BERT minus GPT, is above 0.5; does not hold if an output of BERT does not depend on later words, or GPT's do, or the interval is below 0; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.attention.cross_attention import CrossAttention
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval, looks_ahead
from recollect.views.bilingual import Bilingual

KINDS, GAP, STEPS = 8, 3, 5  # "we made a GAP NOUN": each noun has its own word before it
MASK, FIRST_OTHER, OTHERS = 0, 1, 12
FIRST_GAP = FIRST_OTHER + OTHERS
FIRST_NOUN = FIRST_GAP + KINDS
SYMBOLS = FIRST_NOUN + KINDS
WIDTH, ROWS = 32, 1000


def run(budget: Budget) -> Result:
    updates = 3 if budget.is_small else 120
    measured = [_accuracies(seed, updates) for seed in range(budget.seeds)]
    bert, shuffled, gpt = (statistics.fmean(column) for column in zip(*measured, strict=True))
    gains = [one[0] - one[2] for one in measured]
    low, high = interval(gains)
    ids = _draw(4)
    models = encoder, decoder = _bert().eval(), _gpt().eval()
    sees = all(looks_ahead(lambda x: encoder(x)[0], ids, at) for at in range(1, STEPS))
    ahead = any(looks_ahead(lambda x: decoder(x)[0], ids, at) for at in range(1, STEPS))
    sources = sum(isinstance(part, CrossAttention) for model in models for part in model.modules())
    found = Bilingual(
        f"A gap that the word to its right decides: BERT {bert:.0%} right, GPT {gpt:.0%} (chance {1 / KINDS:.0%}); layers that attend to a source: {sources}.",
        f"由右侧的词决定的空缺：BERT 填对 {bert:.0%}，GPT 填对 {gpt:.0%}（随机 {1 / KINDS:.0%}）；对源序列的注意力层数：{sources}。",
    )
    return Result(
        verdict_of(sees, ahead, sources, (low, high)),
        found,
        statistics.fmean(gains),
        (low, high),
        Control(Bilingual("the most frequent word", "最常见的词"), 1 / KINDS),
        Check(
            Bilingual("with another sentence's noun BERT is at chance", "换成别的句子的名词时，BERT 处于随机水平"),
            abs(shuffled - 1 / KINDS) < 0.05,
        ),
        rows=[{"bert": one[0], "gpt": one[2]} for one in measured],
    )


def verdict_of(sees: bool, ahead: bool, sources: int, gain: tuple[float, float]) -> Verdict:
    """Return the verdict of what BERT's and GPT's outputs depend on, and of the interval of accuracy between them."""
    if not sees or ahead or gain[1] < 0:
        return "does not hold"
    return "holds" if sources == 0 and gain[0] > 0.5 else "not shown"


def _bert() -> MaskedModel:
    return MaskedModel(vocab_size=SYMBOLS, width=WIDTH, layers=1, heads=2, max_length=STEPS, norm="pre", dropout=0.0)


def _gpt() -> LanguageModel:
    return LanguageModel("transformer", SYMBOLS, width=WIDTH, layers=1, heads=2)


def _draw(rows: int) -> Tensor:
    """Return sentences (B, 5): three words of no consequence, the gap's word, and the noun that decides it."""
    others = FIRST_OTHER + torch.randint(OTHERS, (rows, GAP))
    kind = torch.randint(KINDS, (rows, 1))
    return torch.cat([others, FIRST_GAP + kind, FIRST_NOUN + kind], 1)


def _accuracies(seed: int, updates: int) -> tuple[float, float, float]:
    """Return shares of gaps filled rightly: by BERT, by BERT with another sentence's noun, by GPT."""
    torch.manual_seed(seed)
    bert, gpt = _bert(), _gpt()
    fit(bert, lambda: _masked_loss(bert, _draw(64)), updates, rate=0.01)
    fit(gpt, lambda: _next_loss(gpt, _draw(64)), updates, rate=0.01)
    ids = _draw(ROWS)
    hidden = ids.clone()
    hidden[:, GAP] = MASK
    other = hidden.clone()
    other[:, GAP + 1] = hidden[:, GAP + 1].roll(1)
    with torch.no_grad():
        said = [bert(hidden)[0][:, GAP], bert(other)[0][:, GAP], gpt(ids[:, :GAP])[0][:, -1]]
    gaps = ids[:, GAP] - FIRST_GAP
    right = [float((logits[:, FIRST_GAP:FIRST_NOUN].argmax(1) == gaps).float().mean()) for logits in said]
    return right[0], right[1], right[2]


def _masked_loss(model: MaskedModel, ids: Tensor) -> Tensor:
    hidden = ids.clone()
    rows = torch.arange(len(ids))
    at = torch.randint(GAP, STEPS, (len(ids),))
    hidden[rows, at] = MASK
    return F.cross_entropy(model(hidden)[0][rows, at], ids[rows, at])


def _next_loss(model: LanguageModel, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten())
