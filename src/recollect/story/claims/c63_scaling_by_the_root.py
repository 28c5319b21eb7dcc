"""C63: Large keys make dot products large and the softmax's gradient tiny; dividing by √k mends it.

中文：键维度大时点积过大，softmax 的梯度变得极小；除以 √k 可以修正。
Seed: 001_9b45f3fd679b11ad.txt:91, 001_9b45f3fd679b11ad.txt:97
Budget: seconds
Expected: variance of q · k is k; the median norm of the softmax's Jacobian falls from .34 at 16 to 1e-5 at 1,024, and stays .30 when scaled
预期：q · k 的方差为 k；softmax 雅可比矩阵范数的中位数，不缩放时由 k = 16 的 0.34 降到 k = 1,024 的 1e-5，缩放后一直为 0.30
Rule: holds if the variance is k to 10 %, the norm falls more than 1,000 times without the scale and less than 1.5 times with it; else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result
from recollect.views.bilingual import Bilingual

SIZES = (16, 64, 256, 1024)
KEYS, DRAWS = 10, 1000


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    rows = {size: _measure(size) for size in SIZES}
    plain, scaled = (rows[16][place] / rows[1024][place] for place in (1, 2))
    worst = max(abs(rows[size][0] / size - 1) for size in SIZES)
    is_so = worst < 0.1 and plain > 1000 and scaled < 1.5
    curves = [
        Curve(name, [(float(k), rows[k][place]) for k in SIZES]) for place, name in ((1, "q · k"), (2, "q · k / √k"))
    ]
    chart = Chart(
        Bilingual("Median norm of the softmax's Jacobian", "softmax 雅可比矩阵范数的中位数"),
        Bilingual("size of keys", "键的维度"),
        Bilingual("norm", "范数"),
        curves,
        log_x=True,
        log_y=True,
    )
    found = Bilingual(
        f"Variance of q · k is k within {worst:.0%}; from k = 16 to 1,024 the gradient's norm falls {plain:,.0f} times without the scale and {scaled:.2f} times with it.",
        f"q · k 的方差为 k，误差 {worst:.0%} 以内；k 从 16 到 1,024，不缩放时梯度范数下降 {plain:,.0f} 倍，缩放后 {scaled:.2f} 倍。",
    )
    check = Check(Bilingual("random keys: no data are held out", "随机的键：不涉及留出数据"), True)
    return Result(
        "holds" if is_so else "does not hold",
        found,
        plain,
        (plain, plain),
        Control(Bilingual("scaled", "缩放后"), scaled),
        check,
        chart=chart,
    )


def _measure(size: int) -> tuple[float, float, float]:
    """Return the variance of q · k, and the median norm of ∂softmax/∂scores, unscaled and scaled."""
    q = torch.randn(DRAWS, size, 1, dtype=torch.float64)
    scores = (torch.randn(DRAWS, KEYS, size, dtype=torch.float64) @ q)[..., 0]
    norms = []
    for scale in (1.0, size**-0.5):
        a = (scores * scale).softmax(-1)
        slopes = torch.diag_embed(a) - a[:, :, None] * a[:, None]
        norms.append(float(slopes.norm(dim=(1, 2)).median()))
    return float(scores.var()), norms[0], norms[1]
