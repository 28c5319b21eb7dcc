"""C7: Estimating between known values (interpolation) is easier than beyond them (extrapolation).

中文：内插（在已知观测之间估计）比外推（超出已知范围预测）容易。
Seed: 002_c6efc9a4698e0e4d.txt:74, 002_c6efc9a4698e0e4d.txt:75
Budget: minutes
Expected: on a random walk a gap of eight costs a GRU that reads both sides about half the error; on a sine both are near the noise
预期：在随机游走上，读取两侧的 GRU 填补八步缺口的误差约为只读过去的一半；在正弦上两者都接近噪声
Rule: holds where the interval of the ratio of errors, both sides over the past alone, is below 1 on both series; holds if … where on the first only; else does not hold
"""

from __future__ import annotations

import tempfile
from typing import Any

from recollect.runs.train import train
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.tasks.fill import FillTask
from recollect.views.bilingual import Bilingual

GAP, CONTEXT = 8, 24
SERIES = ("random-walk", "sine:noise=5")
ERRORS = tuple[float, list[float]]  # RMSE, and by place in the gap


def run(budget: Budget) -> Result:
    steps = 20 if budget.is_small else 200
    seeds = range(min(budget.seeds, 3))
    found = {
        (name, sides): [_error(name, sides, s, steps) for s in seeds] for name in SERIES for sides in ("both", "before")
    }
    ratios = {
        name: [both[0] / before[0] for both, before in zip(found[name, "both"], found[name, "before"], strict=True)]
        for name in SERIES
    }
    walk, sine = (interval(ratios[name]) for name in SERIES)
    means = [sum(ratios[name]) / len(ratios[name]) for name in SERIES]
    verdict: Verdict = "does not hold" if walk[1] >= 1 else "holds" if sine[1] < 1 else "holds if"
    words = Bilingual(
        f"From both sides a gap of {GAP} has {means[0]:.2f} times the error of a prediction on a random walk, {means[1]:.2f} "
        "times on a sine with little noise.",
        f"从两侧填补 {GAP} 步缺口，误差为预测的 {means[0]:.2f} 倍（随机游走）、{means[1]:.2f} 倍（噪声很小的正弦）。",
    )
    condition = Bilingual("the past does not determine what follows", "过去不能决定之后的数值")
    curves = [_curve(sides, found["random-walk", sides]) for sides in ("both", "before")]
    title = Bilingual("A gap in a random walk: error by place", "随机游走中的缺口：各位置的误差")
    chart = Chart(title, Bilingual("step in the gap", "缺口内的步"), Bilingual("RMSE", "RMSE"), curves)
    leak = Check(Bilingual("hidden values are never given to the model", "被遮住的数值从不交给模型"), True)
    baseline = Control(Bilingual("a sine that its past determines", "由过去决定的正弦"), means[1])
    return Result(verdict, words, means[0], walk, baseline, leak, condition if verdict == "holds if" else None, chart)


def _error(name: str, sides: str, seed: int, steps: int) -> ERRORS:
    """Return the error of a trained GRU in the test part."""
    series = f"{name}{',' if ':' in name else ':'}seed={seed}"
    shape: dict[str, Any] = {"gap": GAP, "context": CONTEXT, "width": 24, "sides": sides}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        run = train(series, task="fill", budget=f"{steps}steps", rate=0.01, seed=seed, out=out, device="cpu", **shape)
        task = run.task
        assert isinstance(task, FillTask)
        scores = task.item_scores(run.model, run.dataset(), "test")
    return scores.value**0.5, [value**0.5 for value in scores.by_position]


def _curve(name: str, found: list[ERRORS]) -> Curve:
    places = zip(*(by_place for _, by_place in found), strict=True)
    return Curve(name, [(float(i + 1), sum(values) / len(values)) for i, values in enumerate(places)])
