"""C19: In an RNN the influence of early inputs decays exponentially.

中文：在 RNN 中，早期输入的影响以指数形式减小。
Seed: 004_87792308dac9c34b.txt:19, 000_56d5b8bda4e4cf77.txt:129
Budget: seconds
Expected: ln ‖∂h_T/∂x_t‖ falls on a straight line over T - t with R² above 0.9 in contractive cells: tanh with spectral radius 0.9, GRU, LSTM; at a radius of 1.5 hardly any decay
预期：在收缩的单元（谱半径 0.9 的 tanh、GRU、LSTM）中，ln ‖∂h_T/∂x_t‖ 随 T - t 呈直线，R² 高于 0.9；谱半径 1.5 时几乎不衰减
Rule: of the contractive cell with the smallest R²: does not hold if its interval is below 0.9 or that of the largest slope above 0; of these, with R² above 0.9 and the slope below 0: holds if radius 1.5 has intervals of R² above 0.9 and of the slope below -0.1 too; holds if … (contractive) where one of these two lies on the other side; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch

from recollect.inspection.trace import Array
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import AnyRecurrence
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

WIDTH, HIDDEN, STEPS, ROWS = 8, 32, 100, 16
LINE, FAST = 0.9, -0.1  # R² of a straight line, nats a step
EDGE = "rnn, radius 1.5"
Interval = tuple[float, float]


def run(budget: Budget) -> Result:
    influences = {name: [_influence(make, seed) for seed in range(budget.seeds)] for name, make in CELLS.items()}
    lines = {name: [_line(norms) for norms in found] for name, found in influences.items()}
    fits = {name: [fit for _, fit in found] for name, found in lines.items()}
    falls = {name: [slope for slope, _ in found] for name, found in lines.items()}
    slopes = {name: statistics.fmean(found) for name, found in falls.items()}
    contractive = [name for name in CELLS if name != EDGE]
    worst = min(contractive, key=lambda name: statistics.fmean(fits[name]))
    low, high = interval(fits[worst])
    slowest = max(contractive, key=lambda name: slopes[name])
    figures = ((low, high), interval(falls[slowest]), interval(fits[EDGE]), interval(falls[EDGE]))
    shown = ", ".join(f"{name}: {slopes[name]:.3f} (R² {statistics.fmean(fits[name]):.3f})" for name in CELLS)
    shuffled = [_line(np.random.default_rng(0).permutation(norms))[1] for norms in influences[worst]]
    curves = [
        Curve(name, [(float(lag), float(norms[lag])) for lag in range(STEPS)])
        for name, (norms, *_) in influences.items()
    ]
    return Result(
        verdict_of(*figures),
        Bilingual(f"Slope of ln ‖∂h_T/∂x_t‖ in nats a step: {shown}.", f"ln ‖∂h_T/∂x_t‖ 的斜率（奈特/步）：{shown}。"),
        statistics.fmean(fits[worst]),
        (low, min(high, 1.0)),
        Control(Bilingual("R² with the steps shuffled", "打乱步序后的 R²"), statistics.fmean(shuffled)),
        Check(Bilingual("a gradient: no data are held out", "梯度计算：不涉及留出数据"), True),
        Bilingual("the cell is contractive", "单元是收缩的"),
        Chart(
            Bilingual("Influence of an input on the last state", "输入对末态的影响"),
            Bilingual("steps before the last", "距末步的步数"),
            Bilingual("‖∂h_T/∂x_t‖", "‖∂h_T/∂x_t‖"),
            curves,
            log_y=True,
        ),
        [{"cell": name, "slope": slopes[name], "fits": fits[name]} for name in CELLS],
        figures,
    )


def verdict_of(fit: Interval, slope: Interval, fit_at_edge: Interval, slope_at_edge: Interval) -> Verdict:
    """Return the verdict of the smallest R² and the largest slope of contractive cells, and of a cell that is not."""
    if fit[1] < LINE or slope[0] > 0:
        return "does not hold"
    if fit[0] <= LINE or slope[1] >= 0:
        return "not shown"
    if fit_at_edge[1] < LINE or slope_at_edge[0] > FAST:
        return "holds if"
    return "holds" if fit_at_edge[0] > LINE and slope_at_edge[1] < FAST else "not shown"


def _rnn(radius: float) -> AnyRecurrence:
    """Return a tanh RNN with a normally distributed W_hh of the given spectral radius."""
    layer = RNN(WIDTH, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        drawn = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64)
        layer.weight_hh.copy_(drawn * (radius / torch.linalg.eigvals(drawn).abs().max()))
    return layer


CELLS: dict[str, Callable[[], AnyRecurrence]] = {
    "rnn, radius 0.9": lambda: _rnn(0.9),
    EDGE: lambda: _rnn(1.5),
    "gru": lambda: GRU(WIDTH, HIDDEN, dtype=torch.float64),
    "lstm": lambda: LSTM(WIDTH, HIDDEN, dtype=torch.float64),
}


def _influence(make: Callable[[], AnyRecurrence], seed: int) -> Array:
    """Return ‖vᵀ ∂h_T/∂x_t‖ by T - t, the geometric mean over rows, each with its own direction v."""
    torch.manual_seed(seed)
    layer = make()
    x = torch.randn(ROWS, STEPS, WIDTH, dtype=torch.float64, requires_grad=True)
    last = layer(x)[0][:, -1]
    (slope,) = torch.autograd.grad((last * torch.randn_like(last)).sum(), x)
    norms: Array = slope.norm(dim=2).log().mean(0).exp().flip(0).numpy()  # (T,)
    return norms


def _line(norms: Sequence[float] | Array) -> tuple[float, float]:
    """Return the slope of ln(norm) over the distance, and R² of the straight line."""
    logs = np.log(norms)
    places = np.arange(len(logs))
    return float(np.polyfit(places, logs, 1)[0]), float(np.corrcoef(places, logs)[0, 1] ** 2)
