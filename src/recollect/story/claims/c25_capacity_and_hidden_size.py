"""C25: To remember more, the hidden state must be larger, which costs memory.

中文：要记住更多内容，隐藏状态就要更大，内存开销也随之增大。
Seed: 003_d30a3ba1164faeec.txt:140, 000_56d5b8bda4e4cf77.txt:122
Budget: minutes
Expected: the number of symbols that a GRU's last state holds (95 % right) grows with the size of the state, roughly in proportion, and so do the pairs in a matrix; training stores every step's state, generation only the last
预期：GRU 末态能容纳的符号数（正确率 95 %）随状态大小增长，大致成正比，矩阵状态容纳的键值对亦然；训练时每一步的状态都要保存，生成时只需末态
Rule: with the slope of ln(symbols held) over ln(size): does not hold if its interval is below 0.25; holds if it is above 0.25 and both training and generation store more the longer the sequence; holds if … (each step is stored in training only) where generation does not; else not shown
"""

from __future__ import annotations

import math
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.saved_tensors import growth_exponent, saved_bytes
from recollect.views.bilingual import Bilingual

SYMBOLS, WIDTH, ROWS = 4, 16, 64
SIZES = (2, 4, 8)
MATRICES = (8, 16, 32)  # sides
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10)  # symbols to hold
HELD, PROPORTION = 0.95, 0.25
GROWS = 0.05  # the exponent of bytes in the number of steps
STEPS = (64, 256)  # whose bytes are compared


def run(budget: Budget) -> Result:
    sizes, updates = (SIZES[:2], 2) if budget.is_small else (SIZES, 600)
    found = [{size: _held(size, seed, updates) for size in sizes} for seed in range(budget.seeds)]
    slopes = [_slope({size: held for size, (held, _) in one.items()}) for one in found]
    low, high = interval(slopes)
    mean = {size: statistics.fmean(one[size][0] for one in found) for size in sizes}
    others = statistics.fmean(other for one in found for _, other in one.values())
    pairs = {side: _pairs(side) for side in MATRICES}
    trained, kept = (growth_exponent({n: float(of(n)) for n in STEPS}) for of in (_stored, _kept))
    vectors, matrices = (", ".join(f"{size}: {held:.3g}" for size, held in one.items()) for one in (mean, pairs))
    words = Bilingual(
        f"Symbols held, by the size of a GRU's state: {vectors}; slope in logarithms {statistics.fmean(slopes):.2f} [{low:.2f}, {high:.2f}]. Pairs in a matrix, by its side: {matrices}. The bytes grow with the steps to the power of {trained:.2f} in training and {kept:.2f} in generation.",
        f"按 GRU 状态大小能容纳的符号数：{vectors}；对数斜率 {statistics.fmean(slopes):.2f} [{low:.2f}, {high:.2f}]。按矩阵边长能容纳的键值对：{matrices}。字节数随步数增长的指数：训练 {trained:.2f}，生成 {kept:.2f}。",
    )
    return Result(
        verdict_of((low, high), trained, kept),
        words,
        statistics.fmean(slopes),
        (low, high),
        Control(Bilingual("a capacity that does not depend on the size", "容量与大小无关"), 0.0),
        Check(
            Bilingual("the symbols of other sequences are at chance", "换成别的序列的符号时处于随机水平"),
            abs(others - 1 / SYMBOLS) < 0.03,
        ),
        Bilingual("the state of each step is stored in training only", "仅在训练时保存每一步的状态"),
        Chart(
            Bilingual("What a state holds (95 % right)", "状态的容量（正确率 95 %）"),
            Bilingual("size of the vector, side of the matrix", "向量大小、矩阵边长"),
            Bilingual("symbols, pairs", "符号、键值对"),
            [
                Curve(name, [(float(size), float(held)) for size, held in one.items()])
                for name, one in (("gru, vector", mean), ("matrix, sum of outer products", pairs))
            ],
            log_x=True,
            log_y=True,
        ),
        [{"seed": seed, "held": {size: held for size, (held, _) in one.items()}} for seed, one in enumerate(found)],
    )


def verdict_of(slope: tuple[float, float], trained: float, kept: float) -> Verdict:
    """Return the verdict of the interval of the slope, and of how bytes grow in training and in generation."""
    if slope[1] < PROPORTION:
        return "does not hold"
    if slope[0] <= PROPORTION or trained < GROWS:
        return "not shown"
    return "holds" if kept > GROWS else "holds if"


def _slope(held: dict[int, int]) -> float:
    """Return the slope of ln(symbols held) over ln(size) by least squares; none held counts as one half."""
    x = [math.log(size) for size in held]
    y = [math.log(max(count, 0.5)) for count in held.values()]
    return statistics.linear_regression(x, y).slope


def _held(size: int, seed: int, updates: int) -> tuple[int, float]:
    """Return the most symbols that are recalled, rising until they are not, and accuracy with other sequences'."""
    held, others = 0, []
    for count in COUNTS:
        right, other = _accuracies(size, count, seed, updates)
        others.append(other)
        if right < HELD:
            break
        held = count
    return held, statistics.fmean(others)


def _accuracies(size: int, count: int, seed: int, updates: int) -> tuple[float, float]:
    """Train a GRU to hold so many symbols in its last state; return the shares recalled: its own, and of other rows."""
    torch.manual_seed(seed)
    model = Stack(Embedding(SYMBOLS, WIDTH), GRU(WIDTH, size), Linear(size, count * SYMBOLS))

    def logits(ids: Tensor) -> Tensor:
        return model(ids)[0][:, -1].unflatten(1, (count, SYMBOLS))  # (B, N, V)

    def loss() -> Tensor:
        ids = torch.randint(SYMBOLS, (ROWS, count))
        return F.cross_entropy(logits(ids).flatten(0, 1), ids.flatten())

    fit(model, loss, updates, rate=0.01, enough=0.02)
    ids = torch.randint(SYMBOLS, (1000, count))
    with torch.no_grad():
        said = logits(ids).argmax(2)
    return float((said == ids).float().mean()), float((said == ids.roll(1, 0)).float().mean())


def _pairs(side: int) -> int:
    """Return the most pairs that Σ v kᵀ of a random direction k and a one-hot v recalls."""
    torch.manual_seed(0)
    held = 0
    for count in range(1, 8 * side):
        keys = F.normalize(torch.randn(200, count, side), dim=2)  # (R, N, d)
        values = torch.randint(side, (200, count))
        state = F.one_hot(values, side).float().transpose(1, 2) @ keys  # (R, d, d)
        said = (keys @ state.transpose(1, 2)).argmax(2)
        if float((said == values).float().mean()) < HELD:
            break
        held = count
    return held


def _stored(steps: int) -> int:
    """Return the bytes that training stores for so many steps."""
    return saved_bytes(GRU(WIDTH, SIZES[-1]), torch.randn(1, steps, WIDTH, requires_grad=True))


def _kept(steps: int) -> int:
    """Return the bytes that generation keeps after so many steps."""
    return GRU(WIDTH, SIZES[-1])(torch.randn(1, steps, WIDTH))[1].nbytes
