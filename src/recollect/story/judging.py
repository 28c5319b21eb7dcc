"""What experiments share: exact identities, intervals over seeds, and the check for leaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.story.claim import Chart, Check, Control, Result, Verdict
from recollect.views.bilingual import Bilingual

DETERMINISTIC = Check(
    Bilingual("an identity: no data are held out", "恒等式：不涉及留出数据"),
    True,
)


def largest_error(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference of two tensors."""
    return float((a - b).detach().abs().max()) if a.numel() else 0.0


def identity(
    errors: Mapping[str, float] | Mapping[Bilingual, float],
    limit: float,
    wrong: Control,
    found: Bilingual | None = None,
    chart: Chart | None = None,
) -> Result:
    """Return the result of an exact identity: it holds where every error is at most `limit`.

    wrong: the error of an alternative that must fail, so that the measurement can fail.
    """
    worst = max(errors.values(), key=lambda error: (error != error, error))
    is_right = all(error <= limit for error in errors.values()) and limit < wrong.value  # none is NaN
    named = {Bilingual(name, name) if isinstance(name, str) else name: error for name, error in errors.items()}
    english = ", ".join(f"{name.en} {error:.1e}" for name, error in named.items())
    chinese = "，".join(f"{name.zh} {error:.1e}" for name, error in named.items())
    words = found or Bilingual(f"Largest errors: {english}.", f"最大误差：{chinese}。")
    rows: list[Mapping[str, Any]] = [{"identity": name.en, "error": error} for name, error in named.items()]
    verdict: Verdict = "holds" if is_right else "does not hold"
    return Result(verdict, words, worst, (worst, worst), wrong, DETERMINISTIC, chart=chart, rows=rows)


def interval(values: Sequence[float], share: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean over seeds: mean ± t s / √n, t from Student's distribution."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return -math.inf, math.inf
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = student_quantile((1 + share) / 2, n - 1) * spread / math.sqrt(n)
    return mean - half, mean + half


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution, above one half: by bisection of its integral.

    With t = √ν tan φ the distribution function is 1/2 + ∫₀^φ cos^{ν-1} / B, B the integral to π/2 twice.
    """
    grid = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(grid) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    share = 0.5 + 0.5 * area / area[-1]
    return math.sqrt(freedom) * math.tan(float(np.interp(probability, share, grid)))


def looks_ahead(read: Callable[[Tensor], Tensor], x: Tensor, at: int) -> bool:
    """Return whether outputs before step `at` change with the input at that step: the leak detector."""
    changed = x.clone()
    changed[:, at] = (x[:, at] + 1) % (int(x.max()) + 1) if not x.is_floating_point() else x[:, at] + 1
    with torch.no_grad():
        return not torch.equal(read(x)[:, :at], read(changed)[:, :at])
