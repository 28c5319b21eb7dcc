"""C7: Estimating between known values (interpolation) is easier than beyond them (extrapolation).

中文：内插（在已知观测之间估计）比外推（超出已知范围预测）容易。
Seed: 002_c6efc9a4698e0e4d.txt:74, 002_c6efc9a4698e0e4d.txt:75
Budget: minutes
Expected: on a random walk a gap of eight costs a GRU that reads both sides about half the error; on a sine both are near the noise
预期：在随机游走上，读取两侧的 GRU 填补八步缺口的误差约为只读过去的一半；在正弦上两者都接近噪声
Rule: with the ratio of errors, both sides over the past alone: holds where its interval is below 1 on both series; holds if … where on the first only, and the interval on the second lies above that on the first; does not hold if it is above 1 on the first; else not shown
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import Any

import torch

from recollect.data.series.gaps import hide, middle_gap
from recollect.data.series.windows import WindowBatch
from recollect.evaluation.gap_metrics import filler_of, gap_scores, naive_fills
from recollect.models.gap_filling import GapFiller
from recollect.runs.train import train
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.tasks.fill import FillTask
from recollect.views.bilingual import Bilingual

GAP, CONTEXT, ROWS = 8, 24, 64
SERIES = ("random-walk", "sine:noise=5")


@dataclass(frozen=True)
class GapError:
    """The errors of one trained model."""

    rmse: float
    by_place: list[float]  # in the gap
    leaks: bool  # whether an estimate changes with what is hidden
    naive: float  # RMSE of the straight line between both sides, or of the last value before the gap


def run(budget: Budget) -> Result:
    steps = 20 if budget.is_small else 200
    seeds = range(budget.seeds)
    found = {
        (name, sides): [_error(name, sides, s, steps) for s in seeds] for name in SERIES for sides in ("both", "before")
    }
    ratios = {
        name: [both.rmse / before.rmse for both, before in zip(found[name, "both"], found[name, "before"], strict=True)]
        for name in SERIES
    }
    walk, sine = (interval(ratios[name]) for name in SERIES)
    means = [sum(ratios[name]) / len(ratios[name]) for name in SERIES]
    words = Bilingual(
        f"From both sides a gap of {GAP} has {means[0]:.2f} times the error of a prediction on a random walk, {means[1]:.2f} "
        f"times on a sine with little noise [{sine[0]:.2f}, {sine[1]:.2f}].",
        f"从两侧填补 {GAP} 步缺口，误差为预测的 {means[0]:.2f} 倍（随机游走）、{means[1]:.2f} 倍（噪声很小的正弦，[{sine[0]:.2f}, {sine[1]:.2f}]）。",
    )
    condition = Bilingual(
        "the past does not determine what follows; where it nearly does, both sides gain less",
        "过去不能决定之后的数值；过去几乎决定后续时，两侧信息的收益较小",
    )
    curves = [_curve(sides, found["random-walk", sides]) for sides in ("both", "before")]
    title = Bilingual("A gap in a random walk: error by place", "随机游走中的缺口：各位置的误差")
    chart = Chart(title, Bilingual("step in the gap", "缺口内的步"), Bilingual("RMSE", "RMSE"), curves)
    leak = Check(
        Bilingual("no estimate changes with the values that are hidden", "任何估计都不随被遮住的数值改变"),
        not any(one.leaks for ones in found.values() for one in ones),
    )
    line, last = (sum(one.naive for one in found["random-walk", sides]) for sides in ("both", "before"))
    baseline = Control(
        Bilingual(
            "the same on the random walk, untrained: straight line over last value",
            "随机游走上不经训练的同一比值：直线插值与最后的值",
        ),
        line / last,
    )
    figures = (walk, sine)
    return Result(verdict_of(*figures), words, means[0], walk, baseline, leak, condition, chart, figures=figures)


def verdict_of(walk: tuple[float, float], sine: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of the ratio, on a series that its past does not determine and on one that it does."""
    if walk[1] < 1 and sine[1] < 1:
        return "holds"
    if walk[1] < min(1, sine[0]):
        return "holds if"
    return "does not hold" if walk[0] > 1 else "not shown"


def _error(name: str, sides: str, seed: int, steps: int) -> GapError:
    """Return the error of a trained GRU in the test part."""
    series = f"{name}{',' if ':' in name else ':'}seed={seed}"
    shape: dict[str, Any] = {"gap": GAP, "context": CONTEXT, "width": 24, "sides": sides}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        run = train(series, task="fill", budget=f"{steps}steps", rate=0.01, seed=seed, out=out, device="cpu", **shape)
        task = run.task
        assert isinstance(task, FillTask)
        model, dataset = run.model, run.dataset()
        scores = task.item_scores(model, dataset, "test")
        is_open = sides == "before"
        fill = naive_fills(1)["last-value" if is_open else "interpolation"]
        naive = gap_scores(fill, dataset.test, GAP, is_open=is_open)["mse"] ** 0.5
    leaks = _leaks(model.eval(), next(dataset.test.in_order(ROWS)), is_open=is_open)
    return GapError(scores.value**0.5, [value**0.5 for value in scores.by_position], leaks, naive)


@torch.no_grad()
def _leaks(model: GapFiller, windows: WindowBatch, *, is_open: bool) -> bool:
    """Return whether estimates change with the values of the gap, or of all that follows its first where it is open."""
    changed = windows.y.clone()
    changed[:, : None if is_open else GAP] += 1
    estimates = [
        filler_of(model)(hide(one, middle_gap(one, GAP), is_open=is_open))
        for one in (windows, replace(windows, y=changed))
    ]
    return not torch.equal(*estimates)


def _curve(name: str, found: list[GapError]) -> Curve:
    places = zip(*(one.by_place for one in found), strict=True)
    return Curve(name, [(float(i + 1), sum(values) / len(values)) for i, values in enumerate(places)])
