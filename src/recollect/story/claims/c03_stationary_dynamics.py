"""C3: Prediction assumes that the dynamics of a sequence do not change; new dynamics cannot be predicted from old data.

中文：预测假设序列本身的动力学不会改变；不可能用已掌握的数据预测新的动力学。
Seed: 002_c6efc9a4698e0e4d.txt:50
Budget: seconds
Expected: when the period of a sine halves, the error of a fitted autoregression at least doubles; refitted on the latest values it recovers most
预期：正弦周期减半时，已拟合的自回归误差至少加倍；用最近的数值重新拟合可以恢复大部分
Rule: holds if the interval of the ratio of errors, after over before the change, is above 2, does not hold if below, else not shown
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recollect.data.synthetic.series_generators import regimes
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

LENGTH, CHANGE, TRAINED = 1200, 800, 600
ORDER, RECENT, BLOCK = 8, 120, 50

Values = NDArray[np.float64]


def run(budget: Budget) -> Result:
    fixed, adaptive = zip(*(_errors(seed) for seed in range(budget.seeds)), strict=True)
    later = slice(CHANGE - TRAINED + RECENT, None)  # when the latest values are all new
    before = slice(0, CHANGE - TRAINED)
    ratios, recovered = ([_rms(e[later]) / _rms(e[before]) for e in errors] for errors in (fixed, adaptive))
    low, high = interval(ratios)
    mean, other = float(np.mean(ratios)), float(np.mean(recovered))
    verdict: Verdict = "holds" if low > 2 else "does not hold" if high < 2 else "not shown"
    found = Bilingual(
        f"After the change the one-step error of the fitted model is {mean:.1f} times that before; refitted on the latest "
        f"{RECENT} values, {other:.1f} times.",
        f"变化之后，已拟合模型的单步误差是之前的 {mean:.1f} 倍；用最近 {RECENT} 个值重新拟合时为 {other:.1f} 倍。",
    )
    chart = Chart(
        Bilingual("One-step error around a change of regime", "动力学变化前后的单步误差"),
        Bilingual("step", "时刻"),
        Bilingual("RMSE", "RMSE"),
        [_curve("fitted once", fixed), _curve("refitted on the latest values", adaptive)],
    )
    leak = Check(
        Bilingual("no prediction changes with its own value or a later one", "任何预测都不随当时及之后的数值改变"),
        not _looks_ahead(np.array(list(regimes(LENGTH)))),
    )
    return Result(
        verdict, found, mean, (low, high), Control(Bilingual("refitted", "重新拟合"), other), leak, chart=chart
    )


def _errors(seed: int) -> tuple[Values, Values]:
    """Return the one-step errors after the training part, of a model fitted once and of one that is fitted anew."""
    x = np.array(list(regimes(LENGTH, seed=seed)))
    once, latest = x[TRAINED:] - _predictions(x)
    return once, latest


def _predictions(x: Values) -> Values:
    """Return what either model predicts for each step after the training part, (2, T)."""
    once = _fitted(x[:TRAINED])
    found = np.empty((2, LENGTH - TRAINED))
    for t in range(TRAINED, LENGTH):
        past = np.append(x[t - ORDER : t], 1.0)
        found[:, t - TRAINED] = past @ once, past @ _fitted(x[t - RECENT : t])
    return found


def _looks_ahead(x: Values) -> bool:
    """Return whether a prediction changes with the values from its own step on."""
    changed = x.copy()
    changed[CHANGE:] += 1
    before = slice(0, CHANGE - TRAINED + 1)
    return not np.array_equal(_predictions(x)[:, before], _predictions(changed)[:, before])


def _fitted(x: Values) -> Values:
    """Return the least-squares weights of an autoregression with a constant."""
    windows = np.lib.stride_tricks.sliding_window_view(x, ORDER + 1)
    inputs = np.column_stack([windows[:, :-1], np.ones(len(windows))])
    return np.asarray(np.linalg.lstsq(inputs, windows[:, -1], rcond=None)[0], dtype=np.float64)


def _rms(errors: Values) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _curve(name: str, errors: tuple[Values, ...]) -> Curve:
    blocks = np.array(errors).reshape(len(errors), -1, BLOCK)  # (seeds, blocks, BLOCK)
    found = np.sqrt(np.square(blocks).mean((0, 2)))
    return Curve(name, [(TRAINED + BLOCK * (i + 0.5), float(value)) for i, value in enumerate(found)])
