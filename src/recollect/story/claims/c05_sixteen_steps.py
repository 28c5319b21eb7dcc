"""C5: Short-term predictions are good; from 16 steps on they deviate strongly.

中文：短期预测效果好；步数从 16 步开始就出现较大偏差。
Seed: 002_c6efc9a4698e0e4d.txt:70
Budget: seconds
Expected: at 16 steps the error is 1.7 to 2.4 times that at one step; how far depends on window and model
预期：16 步的误差是单步的 1.7 到 2.4 倍；程度取决于窗口与模型
Rule: holds if … where the interval of the smallest ratio of errors, 16 steps over one, is above 1.2; does not hold where it is below
"""

from __future__ import annotations

from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

STEPS = (1, 4, 16, 64)


def run(budget: Budget) -> Result:
    sine = measured("series-sine")
    if sine is None:
        return not_measured("series-sine")
    noisy = [row for row in sine["rows"] if row["noise"] > 0]
    ratios = {row["model"]: [one["k16"] / one["k1"] for one in row["by_seed"]] for row in noisy}
    means = {name: sum(values) / len(values) for name, values in ratios.items()}
    least, most = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    low, high = interval(ratios[least])
    spread = sine["floor"]["spread"]
    at16 = [row["k16"] for row in noisy]
    found = Bilingual(
        f"Of 16 steps over one the ratio of errors is {means[least]:.1f} ({least}) to {means[most]:.1f} ({most}); the errors "
        f"at 16 are {min(at16):.2f} to {max(at16):.2f}, the best constant's {spread:.2f} (benchmarks/results/series-sine.json).",
        f"16 步与单步误差之比为 {means[least]:.1f}（{least}）到 {means[most]:.1f}（{most}）；16 步误差 "
        f"{min(at16):.2f} 到 {max(at16):.2f}，最好常数的误差 {spread:.2f}（benchmarks/results/series-sine.json）。",
    )
    verdict: Verdict = "holds if" if low > 1.2 else "does not hold" if high < 1.2 else "not shown"
    condition = Bilingual(
        "the window is short: the step from which predictions are useless depends on window and model",
        "窗口较短：从第几步起预测失效，取决于窗口与模型",
    )
    curves = [Curve(row["model"], [(float(k), row[f"k{k}"]) for k in STEPS]) for row in noisy]
    title = Bilingual("Error against the steps ahead", "误差与预测步数")
    chart = Chart(title, Bilingual("steps", "步数"), Bilingual("RMSE", "RMSE"), curves, log_x=True)
    leak = Check(
        Bilingual(
            "64 steps ahead no model is as good as one step ahead: none reads values on the way",
            "向前 64 步时没有模型与单步一样好：途中不读取任何真值",
        ),
        all(row["k64"] > row["k1"] for row in noisy),
    )
    baseline = Control(Bilingual("error of the best constant", "最好常数的误差"), spread)
    return Result(verdict, found, means[least], (low, high), baseline, leak, condition, chart)
