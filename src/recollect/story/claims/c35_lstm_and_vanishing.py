"""C35: An LSTM solves vanishing and exploding gradients.

中文：LSTM 解决了梯度消失与爆炸。
Seed: 004_87792308dac9c34b.txt:21, 003_d30a3ba1164faeec.txt:163
Budget: seconds
Expected: along the cell ∂c_T/∂c_t is the product of the forget gates: it vanishes where they are below 1; large recurrent weights still explode
预期：沿细胞状态，∂c_T/∂c_t 等于各步遗忘门之积：遗忘门小于 1 时消失；循环权重很大时仍会爆炸
Rule: holds if … (open forget gates) where the product is exact, decays with closed gates, stays with open ones, and large weights explode; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch

from recollect.core.record import record
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import HiddenCell
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

HIDDEN, STEPS = 64, 100
LARGE = 16.0  # times the usual recurrent weights


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    slopes = {bias: _along_the_cell(bias) for bias in (0.0, 3.0, 30.0)}
    errors = {f"∂c_T/∂c_0 - product of the gates, bias {bias:g}": found[1] for bias, found in slopes.items()}
    exploded = min(_explosion(seed) for seed in range(5))
    shut, opened = slopes[0.0][0], slopes[30.0][0]
    result = identity(
        errors, 1e-9, Control(Bilingual("norm with large recurrent weights", "循环权重很大时的范数"), exploded)
    )
    is_so = result.verdict == "holds" and shut < 1e-6 and opened > 0.5 and exploded > 10
    found = Bilingual(
        f"After {STEPS} steps the slope along the cell is {shut:.0e} with forget gates around 1/2, {slopes[3.0][0]:.2g} with a bias of 3, {opened:.2f} with open ones; recurrent weights {LARGE:g} times as large make the whole at least {exploded:.0e} in each of 5 seeds.",
        f"{STEPS} 步之后，沿细胞状态的偏导：遗忘门约 1/2 时 {shut:.0e}，偏置 3 时 {slopes[3.0][0]:.2g}，门全开时 {opened:.2f}；循环权重放大 {LARGE:g} 倍后，5 个种子的整体偏导都至少为 {exploded:.0e}。",
    )
    chart = Chart(
        Bilingual("Slope along the cell after 100 steps", "100 步后沿细胞状态的偏导"),
        Bilingual("bias of the forget gate", "遗忘门偏置"),
        Bilingual("slope", "偏导"),
        [Curve("lstm", [(bias, _along_the_cell(bias)[0]) for bias in (0.0, 1.0, 2.0, 3.0, 4.0, 6.0)])],
    )
    condition = Bilingual(
        "the forget gates stay open; explosion through recurrent weights remains",
        "遗忘门保持打开；经由循环权重的爆炸依旧存在",
    )
    return replace(
        result, found=found, condition=condition, chart=chart, verdict="holds if" if is_so else "does not hold"
    )


def _lstm(bias: float, scale: float, seed: int = 0) -> LSTM:
    torch.manual_seed(seed)
    layer = LSTM(4, HIDDEN, dtype=torch.float64)
    assert layer.bias_ih is not None
    with torch.no_grad():
        layer.weight_hh.mul_(scale)
        layer.bias_ih[HIDDEN : 2 * HIDDEN] = bias
    return layer


def _along_the_cell(bias: float) -> tuple[float, float]:
    """Return the mean of ∂c_T/∂c_0 without recurrent weights, and its difference from the product of the gates."""
    layer = _lstm(bias, 0.0)
    cell = torch.randn(1, HIDDEN, dtype=torch.float64, requires_grad=True)
    x = torch.randn(1, STEPS, 4, dtype=torch.float64)
    with record(layer) as seen:
        _, memory = layer(x, HiddenCell(hidden=torch.zeros_like(cell), cell=cell))
    (slope,) = torch.autograd.grad(memory.cell.sum(), cell)
    product = seen["forget_gate"][0].prod(0)
    return float(slope.mean()), float((slope[0] - product).abs().max().detach())


def _explosion(seed: int) -> float:
    """Return the largest norm of ∂h_T/∂x_t over the steps with large recurrent weights."""
    layer = _lstm(3.0, LARGE, seed)
    x = torch.randn(1, STEPS, 4, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x)[0][:, -1].sum(), x)
    return float(slope.norm(dim=2).max())
