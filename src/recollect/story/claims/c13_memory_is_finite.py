"""C13: The hidden state could hold all of the past, but in practice its memory is limited.

中文：隐藏状态理论上可以保存全部过去，实际上记忆是有限的。
Seed: 000_56d5b8bda4e4cf77.txt:19, 003_d30a3ba1164faeec.txt:138
Budget: minutes
Expected: one number holds as many symbols as its digits allow; a cell that was trained to hold as many as possible recalls the last ones and none from 30 steps ago; more in a larger state, and longer in an LSTM
预期：一个数按其位数可容纳相应多的符号；而被训练得尽量多记的单元能回忆最近的符号，30 步以前的则完全不能；状态越大记得越多，LSTM 记得更久
Rule: with the accuracy of a plain RNN at the last 3 symbols minus that from 30 to 39 steps ago: holds if its interval is above 0.5, and one float64 holds more symbols than a float32; does not hold if it is below 0.1; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SYMBOLS, WIDTH, ROWS = 4, 16, 32
CHANCE = 1 / SYMBOLS
LAGS, STEPS, NEAR, FAR = 40, 60, 3, 30
FALLS, FLAT = 0.5, 0.1
CELLS: dict[str, Callable[[], AnyLayer]] = {
    "rnn, 8": lambda: RNN(WIDTH, 8),
    "rnn, 32": lambda: RNN(WIDTH, 32),
    "lstm, 32": lambda: LSTM(WIDTH, 32),
}
JUDGED = "rnn, 32"


def run(budget: Budget) -> Result:
    updates = 2 if budget.is_small else 400
    seeds = range(budget.seeds)
    found = {name: [_profiles(make, seed, updates) for seed in seeds] for name, make in CELLS.items()}
    falls = [float(right[:NEAR].mean() - right[FAR:].mean()) for right, _ in found[JUDGED]]
    low, high = interval(falls)
    mean = {name: torch.stack([right for right, _ in one]).mean(0) for name, one in found.items()}
    others = statistics.fmean(float(other.mean()) for one in found.values() for _, other in one)
    held = {name: float(((right - CHANCE) / (1 - CHANCE)).sum()) for name, right in mean.items()}
    digits = [_symbols_in_one_number(dtype) for dtype in (torch.float32, torch.float64)]
    figures = ", ".join(f"{name}: {count:.1f}" for name, count in held.items())
    words = Bilingual(
        f"Symbols held, summed over lags: {figures}. {JUDGED}: {mean[JUDGED][:NEAR].mean():.0%} of the last {NEAR} symbols are recalled and {mean[JUDGED][FAR:].mean():.0%} of those {FAR} to {LAGS - 1} steps ago (chance {CHANCE:.0%}). As digits, one float32 holds {digits[0]} symbols and one float64 {digits[1]}.",
        f"各时滞合计容纳的符号数：{figures}。{JUDGED}：最近 {NEAR} 个符号回忆出 {mean[JUDGED][:NEAR].mean():.0%}，{FAR} 至 {LAGS - 1} 步以前的 {mean[JUDGED][FAR:].mean():.0%}（随机 {CHANCE:.0%}）。以数位存放时，一个 float32 可容纳 {digits[0]} 个符号，一个 float64 {digits[1]} 个。",
    )
    return Result(
        verdict_of((low, high), digits[0], digits[1]),
        words,
        statistics.fmean(falls),
        (low, high),
        Control(Bilingual("accuracy by chance", "随机正确率"), CHANCE),
        Check(
            Bilingual("the symbols of other sequences are at chance", "换成别的序列的符号时处于随机水平"),
            abs(others - CHANCE) < 0.02,
        ),
        chart=Chart(
            Bilingual("What a linear read-out recalls from the state", "线性读出从状态中回忆的内容"),
            Bilingual("steps ago", "步以前"),
            Bilingual("symbols recalled", "正确回忆的符号"),
            [Curve(name, [(float(lag), float(right[lag])) for lag in range(LAGS)]) for name, right in mean.items()],
        ),
    )


def verdict_of(fall: tuple[float, float], short: int, long: int) -> Verdict:
    """Return the verdict of the fall of accuracy with the lag, and of the symbols in a float32 and in a float64."""
    if fall[0] > FALLS and long > short:
        return "holds"
    return "does not hold" if fall[1] < FLAT else "not shown"


def _profiles(make: Callable[[], AnyLayer], seed: int, updates: int) -> tuple[Tensor, Tensor]:
    """Train a cell to hold the last `LAGS` symbols; return the shares recalled by lag, and with other rows' symbols."""
    torch.manual_seed(seed)
    cell = make()
    assert cell.width_out is not None
    model = Stack(Embedding(SYMBOLS, WIDTH), cell, Linear(cell.width_out, LAGS * SYMBOLS))

    def logits(ids: Tensor) -> Tensor:
        return model(ids)[0][:, LAGS - 1 :].unflatten(2, (LAGS, SYMBOLS))  # (B, T, K, V)

    def loss() -> Tensor:
        ids = torch.randint(SYMBOLS, (ROWS, STEPS))
        return F.cross_entropy(logits(ids).flatten(0, 2), _past(ids).flatten())

    fit(model, loss, updates, rate=0.01)
    ids = torch.randint(SYMBOLS, (4 * ROWS, STEPS))
    with torch.no_grad():
        said = logits(ids).argmax(3)
    own, other = ((said == _past(rows)).float().mean((0, 1)) for rows in (ids, ids.roll(1, 0)))
    return own, other


def _past(ids: Tensor) -> Tensor:
    """Return the symbols k steps ago, (B, T, K), at the steps that have `LAGS` of them."""
    return ids.unfold(1, LAGS, 1).flip(2)


def _symbols_in_one_number(dtype: torch.dtype) -> int:
    """Return how many symbols h_t = (h_{t-1} + x_t) / V holds: its digits in base V are the symbols, the last first."""
    draw = torch.Generator().manual_seed(0)
    for count in range(1, LAGS):
        ids = torch.randint(SYMBOLS, (200, count), generator=draw)
        state = torch.zeros(200, dtype=dtype)
        for symbol in ids.T:
            state = (state + symbol) / SYMBOLS
        for symbol in ids.T.flip(0):
            digit = (state * SYMBOLS).floor()
            if not torch.equal(digit.long(), symbol):
                return count - 1
            state = state * SYMBOLS - digit
    return LAGS
