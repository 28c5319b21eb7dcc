"""C30: Truncated back-propagation loses information over long distances, but is faster and more stable.

中文：截断的随时间反向传播会丢失远距离信息，但更快、更稳定。
Seed: 002_c6efc9a4698e0e4d.txt:146
Budget: seconds
Expected: a symbol is copied over a lag L only where τ is above L, unless the carried state of an untrained network suffices; fewer seconds a symbol and less variance of the gradient's norm for small τ
预期：仅当 τ 大于间隔 L 时才能学会复制符号，除非未训练网络携带的状态已够用；τ 小时每个符号耗时更少、梯度范数的方差更小
Rule: does not hold if in all seeds a lag beyond τ is learned (95 % right) for most pairs; holds if for none, every lag within τ is, and τ = 5 has more symbols a second and less variance than full; holds if … (only the loss is meant) where one of these two is not so; else not shown
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

NAME, SUCCESS, SHORT = "truncation", 0.95, 5


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    rows = [row for row in saved["rows"] if row["experiment"] == "copy"]
    carried = [row for row in rows if row["memory"] == "carried"]
    beyond, within = ([_is_learned(row) for row in carried if _is_beyond(row) == side] for side in (True, False))
    speeds = saved["symbols_per_second"]
    variances = {row["steps"]: row["variance"] for row in saved["gradients"]}
    faster, steadier = speeds[str(SHORT)] / speeds["full"], variances["full"] / variances[SHORT]
    share = _share(beyond)
    found = Bilingual(
        f"Lags beyond τ are learned in every seed in {sum(beyond)} of {len(beyond)} pairs, lags within τ in {sum(within)} of {len(within)}. τ = {SHORT} reads {faster:.2f} times as many symbols a second as full back-propagation, and the variance of its gradient's norm is {1 / steadier:.0f} times as large (benchmarks/results/{NAME}.json).",
        f"间隔超过 τ 的 {len(beyond)} 组中有 {sum(beyond)} 组在所有种子上学会，不超过 τ 的 {len(within)} 组中有 {sum(within)} 组。τ = {SHORT} 每秒读入的符号数是完整反向传播的 {faster:.2f} 倍，梯度范数的方差是其 {1 / steadier:.0f} 倍（benchmarks/results/{NAME}.json）。",
    )
    without = [row for row in rows if row["memory"] == "not carried" and _is_beyond(row)]
    worst = max(row["median"] for row in without)
    lags = sorted({row["lag"] for row in carried})
    curves = [
        Curve(f"τ = {steps}", [(float(row["lag"]), row["median"]) for row in carried if row["steps"] == steps])
        for steps in dict.fromkeys(row["steps"] for row in carried)
    ]
    return Result(
        verdict_of(beyond, within, faster, steadier),
        found,
        share,
        (share, share),
        Control(Bilingual("share of lags within τ", "间隔不超过 τ 的比例"), _share(within)),
        Check(
            Bilingual(
                "where no memory is carried, lags beyond τ are at chance", "不携带记忆时，超过 τ 的间隔处于随机水平"
            ),
            worst < saved["settings"]["copy"]["chance"] + 0.05,
        ),
        Bilingual("only the loss of information is meant, not speed and stability", "仅指丢失信息，不指速度与稳定性"),
        Chart(
            Bilingual("Symbols recalled", "正确回忆的符号"),
            Bilingual(f"lag, from {lags[0]} to {lags[-1]}", f"间隔，{lags[0]} 至 {lags[-1]}"),
            Bilingual("share", "比例"),
            curves,
        ),
    )


def verdict_of(beyond: Sequence[bool], within: Sequence[bool], faster: float, steadier: float) -> Verdict:
    """Return the verdict of which lags are learned, and of how much faster and steadier the shortest truncation is."""
    if _share(beyond) > 0.5:
        return "does not hold"
    if any(beyond) or not all(within):
        return "not shown"
    return "holds" if faster > 1 and steadier > 1 else "holds if"


def _is_beyond(row: dict[str, Any]) -> bool:
    return bool(row["steps"] != "full" and row["lag"] >= row["steps"])


def _is_learned(row: dict[str, Any]) -> bool:
    return bool(min(row["accuracies"]) >= SUCCESS)


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)
