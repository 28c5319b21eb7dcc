"""C6: Where predictions are fed back, errors accumulate and the prediction fails.

中文：把预测值回送作为输入时，误差不断积累，预测效果奇差。
Seed: 002_c6efc9a4698e0e4d.txt:72
Budget: seconds
Expected: on a noisy sine the free run is worse than the best constant; without noise a linear model has no error at all
预期：在带噪声的正弦上自由运行比最好的常数更差；没有噪声时线性模型毫无误差
Rule: with the smallest ratio of errors, free run over one step, with noise: holds if … where its interval is above 1 and no error exceeds 1e-9 without noise; holds where both accumulate; does not hold if the interval is below 1; else not shown
"""

from __future__ import annotations

from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    sine = measured("series-sine")
    if sine is None:
        return not_measured("series-sine")
    noisy = [row for row in sine["rows"] if row["noise"] > 0]
    silent = max(row["free"] for row in sine["rows"] if row["noise"] == 0)
    ratios = {row["model"]: [one["free"] / one["k1"] for one in row["by_seed"]] for row in noisy}
    least = min(ratios, key=lambda name: sum(ratios[name]))
    low, high = interval(ratios[least])
    mean = sum(ratios[least]) / len(ratios[least])
    free = [row["free"] for row in noisy]
    spread = sine["floor"]["spread"]
    found = Bilingual(
        f"With noise the free run has at least {mean:.0f} times the one-step error ({least}) and {min(free):.2f} to "
        f"{max(free):.2f} in all, the best constant {spread:.2f}; without noise a linear model has {silent:.0e}.",
        f"有噪声时，自由运行的误差至少是单步的 {mean:.0f} 倍（{least}），为 {min(free):.2f} 到 {max(free):.2f}，"
        f"最好的常数为 {spread:.2f}；无噪声时线性模型的误差为 {silent:.0e}。",
    )
    condition = Bilingual("there is noise, or the model is wrong", "存在噪声，或模型有误")
    leak = Check(
        Bilingual(
            "the free run is no better than 64 steps from values that were read: it reads none after its start",
            "自由运行不优于从真值出发的 64 步预测：起点之后不读取任何真值",
        ),
        all(row["free"] >= row["k64"] for row in noisy),
    )
    baseline = Control(Bilingual("free run without noise", "无噪声时的自由运行"), silent)
    return Result(verdict_of((low, high), silent), found, mean, (low, high), baseline, leak, condition)


def verdict_of(ratio: tuple[float, float], silent: float) -> Verdict:
    """Return the verdict of the interval of the ratio with noise, and of the error without."""
    if ratio[0] > 1:
        return "holds if" if silent < 1e-9 else "holds"
    return "does not hold" if ratio[1] < 1 else "not shown"
