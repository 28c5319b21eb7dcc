"""C29: Full back-propagation through time is not feasible, and its gradients explode or vanish; truncation solves this.

中文：完整的随时间反向传播不可行，梯度会爆炸或消失；截断可以解决。
Seed: 002_c6efc9a4698e0e4d.txt:136, 002_c6efc9a4698e0e4d.txt:162
Budget: seconds
Expected: forward and backward through 4,096 steps take well below a minute on a CPU, with time and bytes linear in T; truncated to τ steps, the gradient from before the cut is exactly 0, so that vanishing becomes total
预期：在 CPU 上前向加反向通过 4,096 步远低于一分钟，时间与字节数随 T 线性增长；截断为 τ 步时，截断之前的梯度恰好为 0，即完全消失
Rule: does not hold if 1,000 steps or more take less than 60 s and truncation makes the gradient from before the cut exactly 0 where the full one is not; holds if they take longer and it does not; else not shown
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.recurrent.lstm import LSTM
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.results import measured, not_measured
from recollect.story.saved_tensors import growth_exponent, saved_bytes
from recollect.views.bilingual import Bilingual

NAME, FAMILY, MINUTE = "growth", "rnn", 60.0  # seconds
STEPS, TAU, WIDTH, HIDDEN = 1000, 20, 8, 64


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    chosen = [row for row in saved["rows"] if row["axis"] == "T" and row["pass"] == "forward + backward"]
    row = next(row for row in chosen if row["family"] == FAMILY)
    layer = LSTM(WIDTH, HIDDEN, dtype=torch.float64)
    stored = {n: float(saved_bytes(layer, torch.randn(1, n, WIDTH, dtype=torch.float64))) for n in (STEPS // 2, STEPS)}
    beyond, cut = _influence(layer)
    seconds, longest = row["ms"][-1] / 1000, row["sizes"][-1]
    bytes_exponent = growth_exponent(stored)
    found = Bilingual(
        f"Forward and backward through {longest:,} steps of an RNN take {seconds:.3f} s (time grows with T to the power of {row['exponent']:.2f}, bytes {bytes_exponent:.2f}; benchmarks/results/{NAME}.json). From more than {TAU} steps before comes {beyond:.0e} of an LSTM's gradient in full, {cut:g} truncated.",
        f"RNN 前向加反向通过 {longest:,} 步用时 {seconds:.3f} 秒（时间随 T 的指数 {row['exponent']:.2f}，字节数 {bytes_exponent:.2f}；benchmarks/results/{NAME}.json）。LSTM 的梯度中来自 {TAU} 步以前的部分：完整时 {beyond:.0e}，截断后 {cut:g}。",
    )
    chart = Chart(
        Bilingual("Forward and backward", "前向加反向"),
        Bilingual("steps", "步数"),
        Bilingual("seconds", "秒"),
        [Curve(FAMILY, [(float(n), ms / 1000) for n, ms in zip(row["sizes"], row["ms"], strict=True)])],
        log_x=True,
        log_y=True,
    )
    return Result(
        verdict_of(seconds, longest, beyond, cut),
        found,
        cut,
        (cut, cut),
        Control(Bilingual("the same share in full", "完整计算时的同一比例"), beyond),
        Check(Bilingual("gradients and times: no data are held out", "梯度与耗时：不涉及留出数据"), True),
        chart=chart,
        rows=[{"bytes": stored, "seconds": seconds, "steps": longest}],
    )


def verdict_of(seconds: float, steps: int, beyond: float, cut: float) -> Verdict:
    """Return the verdict of the time of full back-propagation and of the shares of the gradient from before the cut."""
    is_feasible = steps >= STEPS and seconds < MINUTE
    if is_feasible and cut == 0 < beyond:
        return "does not hold"
    return "holds" if not is_feasible and cut > 0 else "not shown"


def _influence(layer: LSTM) -> tuple[float, float]:
    """Return the share of Σ_t ‖∂h_T/∂x_t‖ from more than τ steps before the last: in full, and truncated."""
    x = torch.randn(1, 10 * TAU, WIDTH, dtype=torch.float64, requires_grad=True)
    full = layer(x)[0]
    early, late = x.split([9 * TAU, TAU], 1)
    truncated = layer(late, layer(early)[1].detach())[0]
    return _share_before(full, x), _share_before(truncated, x)


def _share_before(y: Tensor, x: Tensor) -> float:
    (slope,) = torch.autograd.grad(y[:, -1].sum(), x)
    norms = slope[0].norm(dim=1)  # (T,)
    return float(norms[:-TAU].sum() / norms.sum())
