"""C64: Several attention heads find several relations at once.

中文：多个注意力头可以同时找到多种关系。
Seed: 001_9b45f3fd679b11ad.txt:99, 004_87792308dac9c34b.txt:51
Budget: seconds
Expected: in "mary gave roses to susan" one layer at the verb must find giver and receiver; four heads do better than one of the same width and number of parameters; too many may do worse
预期：对“mary gave roses to susan”，动词处的一层须同时找到给予者与接受者；宽度与参数量相同时，四个头好于一个头；头太多可能变差
Rule: holds if the interval of accuracy on both names, four heads minus one, is above 0; does not hold if it is below 0 or the difference is within 0.02 where one of the two is right in more than half; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.positions import Positions
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

NAMES, THINGS, WIDTH = 24, 8, 32
GAVE, TO, FIRST_THING = NAMES, NAMES + 1, NAMES + 2
HEADS = (1, 4, 8)
VERB_AT, ROWS = 1, 2000
LEARNED = 0.5  # of the answers right: below it nothing is refuted


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 250
    seeds = range(budget.seeds)
    measured = {heads: [_accuracies(heads, seed, updates) for seed in seeds] for heads in HEADS}
    right = {heads: [pair[0] for pair in pairs] for heads, pairs in measured.items()}
    shuffled = statistics.fmean(pair[1] for pairs in measured.values() for pair in pairs)
    gains = [four - one for four, one in zip(right[4], right[1], strict=True)]
    low, high = interval(gains)
    mean = {heads: statistics.fmean(values) for heads, values in right.items()}
    shares = ", ".join(f"{heads}: {share:.0%}" for heads, share in mean.items())
    found = Bilingual(
        f"Giver and receiver both right, by the number of heads at width {WIDTH}: {shares}; four minus one {statistics.fmean(gains):.3f} [{low:.3f}, {high:.3f}].",
        f"给予者与接受者都答对的比例，按头数（宽度 {WIDTH}）：{shares}；四头减一头 {statistics.fmean(gains):.3f} [{low:.3f}, {high:.3f}]。",
    )
    chart = Chart(
        Bilingual("Two relations at once", "同时找两种关系"),
        Bilingual("heads", "头数"),
        Bilingual("both names right", "两个名字都答对"),
        [Curve("one layer", [(float(heads), share) for heads, share in mean.items()])],
        log_x=True,
    )
    check = Check(
        Bilingual("with another sentence's names it is at chance", "换成别的句子的名字时处于随机水平"), shuffled < 0.02
    )
    return Result(
        verdict_of(low, high, max(mean[1], mean[4])),
        found,
        statistics.fmean(gains),
        (low, high),
        Control(Bilingual("chance", "随机"), 1 / NAMES**2),
        check,
        chart=chart,
    )


def verdict_of(low: float, high: float, learned: float) -> Verdict:
    """Return the verdict of the interval of accuracy, four heads minus one, and of the accuracy of either."""
    if low > 0:
        return "holds"
    is_same = -0.02 < low <= high < 0.02 and learned > LEARNED
    return "does not hold" if high < 0 or is_same else "not shown"


def _accuracies(heads: int, seed: int, updates: int) -> tuple[float, float]:
    """Return the shares of new sentences with both names right: their own, and those of other sentences."""
    torch.manual_seed(seed)
    vocabulary = FIRST_THING + THINGS
    attention = SelfAttention(WIDTH, heads, causal=False)
    model = Stack(Embedding(vocabulary, WIDTH), Positions(WIDTH), attention, Linear(WIDTH, 2 * NAMES))
    fit(model, lambda: _loss(model, _draw(64)), updates, rate=0.01)
    ids = _draw(ROWS)
    with torch.no_grad():
        said = _logits(model, ids).argmax(2)
    names = ids[:, [0, 4]]
    return float((said == names).all(1).float().mean()), float((said == names.roll(1, 0)).all(1).float().mean())


def _draw(rows: int) -> Tensor:
    """Return sentences (B, 5): NAME gave THING to NAME."""
    names = torch.randint(NAMES, (rows, 2))
    thing = FIRST_THING + torch.randint(THINGS, (rows,))
    gave, to = (torch.full((rows,), word) for word in (GAVE, TO))
    return torch.stack([names[:, 0], gave, thing, to, names[:, 1]], 1)


def _logits(model: Stack, ids: Tensor) -> Tensor:
    return model(ids)[0][:, VERB_AT].unflatten(1, (2, NAMES))


def _loss(model: Stack, ids: Tensor) -> Tensor:
    return F.cross_entropy(_logits(model, ids).flatten(0, 1), ids[:, [0, 4]].flatten())
