"""C31: Random truncation backfires: regular truncation is enough.

中文：随机截断弄巧成拙，固定步长截断就够了。
Seed: 002_c6efc9a4698e0e4d.txt:164, 002_c6efc9a4698e0e4d.txt:166
Budget: seconds
Expected: one draw of the reweighted random gradient is farther from the full one than the regular gradient, its mean is nearer; regular truncation at 10 learns dependencies over 4 and 8 steps, and moves away from the start loss of 8 in influence balancing, where reweighted random truncation converges
预期：加权随机截断的单次梯度比固定截断离完整梯度更远，平均后则更近；固定截断 10 步能学会 4 步与 8 步的依赖，但在影响平衡实验中偏离初始损失 8，加权随机截断则能收敛
Rule: with the error of a single random gradient over the regular one's, at a mean length of 10: holds if its interval is above 1 and regular truncation at 10 learns in both regimes, dependencies over 4 and 8 steps and influence balancing; holds if … (dependencies are short) if the interval is above 1, regular truncation learns in the former only, and reweighted truncation in the latter; does not hold if the interval is below 1 and regular truncation fails in the latter, where reweighted does not; else not shown
规则：取平均长度 10 时单次随机梯度与固定截断梯度的误差之比：若区间高于 1，且固定截断 10 步在两种情形（4 步与 8 步的依赖、影响平衡）中都能学会，则成立；若区间高于 1，固定截断只在前者中学会，而加权截断在后者中学会，则有条件成立（依赖较短）；若区间低于 1，且固定截断在后者中失败而加权截断没有，则不成立；否则未能判定
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

NAME, START, REACH = "truncation", 8.0, 10  # REACH: the (mean) length that is judged
HIDDEN, STEPS, RADIUS = 16, 60, 0.95
LENGTHS, DRAWS, SYSTEMS = (3, 5, 10, 20), 200, 10
Errors = dict[int, tuple[float, float, float]]  # by length: regular, one random draw, the mean of the draws


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    medians, limit = _balanced(saved), saved["settings"]["balancing"]["converged_below"]
    regular = medians["regular", REACH]
    best = min(value for (kind, steps), value in medians.items() if kind == "reweighted" and steps != "full")
    short = _copied(saved)
    draws, systems = (20, 2) if budget.is_small else (DRAWS, SYSTEMS)
    found = [_mean_errors(seed, draws, systems) for seed in range(budget.seeds)]
    ratios = [errors[REACH][1] / errors[REACH][0] for errors in found]
    low, high = interval(ratios)
    fixed, single, mean = (statistics.fmean(errors[REACH][place] for errors in found) for place in range(3))
    words = Bilingual(
        f"Relative error of the gradient at a length of {REACH}: regular {fixed:.2f}, one random draw {single:.2f}, the mean of {DRAWS} draws {mean:.2f}; one draw over regular {statistics.fmean(ratios):.2f} [{low:.2f}, {high:.2f}]. "
        f"Dependencies over 4 and 8 steps, regular at {REACH}: right in at least {short:.0%}. Influence balancing, start loss {START:g}: regular at {REACH} ends at {regular:,.3g}, reweighted random truncation at best at {best:.2g} (benchmarks/results/{NAME}.json).",
        f"长度 {REACH} 时梯度的相对误差：固定截断 {fixed:.2f}，单次随机 {single:.2f}，{DRAWS} 次随机的平均 {mean:.2f}；单次随机与固定截断之比 {statistics.fmean(ratios):.2f} [{low:.2f}, {high:.2f}]。"
        f"4 步与 8 步的依赖，固定截断 {REACH} 步：正确率不低于 {short:.0%}。影响平衡实验，初始损失 {START:g}：固定截断 {REACH} 步终点 {regular:,.3g}，加权随机截断最好为 {best:.2g}（benchmarks/results/{NAME}.json）。",
    )
    longest = max(steps for kind, steps in medians if kind == "regular")
    check = Check(
        Bilingual(
            f"the task can be learned: truncation at {longest:,} steps, which cuts next to nothing, converges",
            f"任务可以学会：{longest:,} 步截断几乎什么也没截掉，能够收敛",
        ),
        medians["regular", longest] < limit,
    )
    names = ("regular", "one random draw", f"mean of {DRAWS} random draws")
    curves = [
        Curve(name, [(float(n), statistics.fmean(errors[n][place] for errors in found)) for n in LENGTHS])
        for place, name in enumerate(names)
    ]
    figures = ((low, high), short >= saved["settings"]["copy"]["success"], regular < limit, best < limit)
    return Result(
        verdict_of(*figures),
        words,
        statistics.fmean(ratios),
        (low, high),
        Control(Bilingual("as far from the full gradient as regular truncation's", "与固定截断的误差相同"), 1.0),
        check,
        Bilingual("dependencies are short", "依赖较短"),
        Chart(
            Bilingual("Error of a truncated gradient", "截断梯度的误差"),
            Bilingual("steps before a cut, in the mean", "截断前的平均步数"),
            Bilingual("relative to the full gradient", "相对于完整梯度"),
            curves,
            log_x=True,
            log_y=True,
        ),
        [{"seed": seed, "errors": errors} for seed, errors in enumerate(found)],
        figures,
    )


def verdict_of(excess: tuple[float, float], short: bool, long: bool, reweighted: bool) -> Verdict:
    """Return the verdict of the error of one random draw over regular's, and of who learns short and long influence."""
    if long:
        return "holds" if short and excess[0] > 1 else "not shown"
    if not reweighted:
        return "not shown"
    if excess[0] > 1:
        return "holds if" if short else "not shown"
    return "does not hold" if excess[1] < 1 else "not shown"


def _balanced(saved: dict[str, Any]) -> dict[tuple[str, Any], float]:
    """Return the median last losses of influence balancing, by kind and steps."""
    rows = [row for row in saved["rows"] if row["experiment"] == "influence balancing"]
    return {(row["kind"], row["steps"]): float(row["median"]) for row in rows}


def _copied(saved: dict[str, Any]) -> float:
    """Return the least accuracy of regular truncation over lags that it reaches over."""
    rows = [row for row in saved["rows"] if row["experiment"] == "copy" and row["memory"] == "carried"]
    return min(min(row["accuracies"]) for row in rows if row["steps"] == REACH and row["lag"] < REACH)


def _mean_errors(seed: int, draws: int, systems: int) -> Errors:
    """Return the mean errors over several systems: of one alone they depend on its eigenvalues."""
    torch.manual_seed(seed)
    found = [_errors(draws) for _ in range(systems)]
    return {length: _means([errors[length] for errors in found]) for length in LENGTHS}


def _means(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    first, second, third = (statistics.fmean(column) for column in zip(*rows, strict=True))
    return first, second, third


def _errors(draws: int) -> Errors:
    """Return how far truncated gradients of a linear RNN are from the full one, relative to its norm."""
    own, target = (_matrix() for _ in range(2))
    x = torch.randn(STEPS, HIDDEN, dtype=torch.float64)
    wanted = _states(target[None], x, torch.ones(STEPS, 1, dtype=torch.float64))
    full = _gradients(own, x, wanted, torch.ones(STEPS, 1))[0]
    found = {}
    for length in LENGTHS:
        cuts = (torch.arange(STEPS) % length == 0)[:, None]
        regular = _gradients(own, x, wanted, 1.0 - cuts.double())[0]
        go = 1 - 1 / length
        drawn = _gradients(own, x, wanted, (torch.rand(STEPS, draws) < go).double() / go)  # (draws, H, H)
        single, mean = (drawn - full).norm(dim=(1, 2)).mean(), (drawn.mean(0) - full).norm()
        fixed, one, all_of_them = (float(off / full.norm()) for off in ((regular - full).norm(), single, mean))
        found[length] = fixed, one, all_of_them
    return found


def _matrix() -> Tensor:
    drawn = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64)
    return drawn * (RADIUS / torch.linalg.eigvals(drawn).abs().max())


def _states(weights: Tensor, x: Tensor, factors: Tensor) -> Tensor:
    """Return states (T, D, H) of weights (D, H, H); the gradient into step t is multiplied by the factor at t (T, D)."""
    h, states = torch.zeros(len(weights), HIDDEN, dtype=torch.float64), []
    for one, factor in zip(x, factors, strict=True):
        passed = h.detach() + factor[:, None] * (h - h.detach())
        h = one + torch.einsum("dij,dj->di", weights, passed)
        states.append(h)
    return torch.stack(states)


def _gradients(weight: Tensor, x: Tensor, wanted: Tensor, factors: Tensor) -> Tensor:
    """Return the gradient of the squared error of all states by the weights, for each column of factors (D, H, H)."""
    weights = weight.repeat(factors.shape[1], 1, 1).requires_grad_()
    loss = (_states(weights, x, factors) - wanted).square().sum()
    return torch.autograd.grad(loss, weights)[0]
