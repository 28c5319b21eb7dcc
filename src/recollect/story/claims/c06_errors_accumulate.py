"""C6: Where predictions are fed back, errors accumulate and the prediction fails.

中文：把预测值回送作为输入时，误差不断积累，预测效果奇差。
Seed: 002_c6efc9a4698e0e4d.txt:72
Budget: seconds
Expected: on a noisy sine the free run is worse than the best constant; without noise a linear model has no error at all
预期：在带噪声的正弦上自由运行比最好的常数更差；没有噪声时线性模型毫无误差
Rule: holds if … where the interval of the smallest ratio, free run over one step, is above 1 with noise and no error exceeds 1e-9 without; holds where both accumulate; else does not hold
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
    is_noise = low > 1
    verdict: Verdict = "does not hold" if not is_noise else "holds if" if silent < 1e-9 else "holds"
    condition = Bilingual("there is noise, or the model is wrong", "存在噪声，或模型有误")
    leak = Check(Bilingual("the free run reads no value after its start", "自由运行起点之后不读取任何真值"), True)
    baseline = Control(Bilingual("free run without noise", "无噪声时的自由运行"), silent)
    return Result(verdict, found, mean, (low, high), baseline, leak, condition)
