"""The verdict of a comparison: which model to take, under which condition, how sure that is.

Rules 3 to 6 of docs/decisions/0024-comparisons.md, and the sentences that state what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recollect.comparison.significance import LEVEL, Draws, Measured, draw, holm
from recollect.core.task import Baseline
from recollect.views.bilingual import Bilingual

SURE = 0.95  # of the draws: a recommended model is better than every naive row
TIME = Bilingual("time", "时间")
MEMORY = Bilingual("memory", "内存")


@dataclass(frozen=True)
class Judged:
    """What the rules give."""

    best: str | None  # the best mean; None: nothing was measured
    winner: str | None  # the best, where all others differ significantly
    level: tuple[str, ...]  # those that do not differ from the best, itself included, best first
    chances: Mapping[str, float]  # p of being equal to the best, corrected for all of them
    naive: str | None  # a naive row that the best does not surely beat
    draws: Draws | None = None

    @property
    def is_recommended(self) -> bool:
        """Whether there is a model to take."""
        return self.best is not None and self.naive is None


def judge(models: Sequence[Measured], lower_is_better: bool, naive: Sequence[Baseline] = ()) -> Judged:
    """Return the winner, or those between which there is no clear winner."""
    usable = sorted((m for m in models if m.seeds and all(map(math.isfinite, m.values))), key=lambda m: m.name)
    if not usable:
        return Judged(None, None, (), {}, None)
    sign = 1.0 if lower_is_better else -1.0
    order = sorted(usable, key=lambda m: (sign * m.mean, m.name))
    best = order[0].name
    draws = draw(usable)
    chances = holm({m.name: draws.equality(best, m.name) for m in order[1:]})
    level = (best, *(m.name for m in order[1:] if chances[m.name] > LEVEL))
    winner = best if len(level) == 1 and len(order) > 1 else None
    return Judged(best, winner, level, chances, _unbeaten(order[0], draws, lower_is_better, naive), draws)


def _unbeaten(best: Measured, draws: Draws, lower_is_better: bool, naive: Sequence[Baseline]) -> str | None:
    """Return the strongest naive row that the best model does not beat in 95 % of the draws."""
    sign = 1.0 if lower_is_better else -1.0
    for row in sorted(naive, key=lambda one: sign * one.value):
        drawn = draws.better(best.name, row.value, lower_is_better)
        is_single = len(best.seeds) == 1 and not best.counts
        is_better = sign * best.mean < sign * row.value if is_single else drawn >= SURE
        if not is_better:
            return row.name
    return None


def cheapest(judged: Judged, costs: Mapping[str, float]) -> tuple[str, bool] | None:
    """Return the model to take where a cost counts, and whether it is worse than the best.

    The cheapest of those that do not differ from the best; where the best stands alone, the best of those at half its
    cost. None: there is no other choice than the best, or its cost is not known.
    """
    if judged.best is None or judged.best not in costs:
        return None
    within = [name for name in judged.level if name in costs]
    if len(within) > 1:
        return min(within, key=lambda name: (costs[name], name)), False
    half = [name for name in judged.chances if costs.get(name, math.inf) <= costs[judged.best] / 2]
    return (half[0], True) if half else None  # `chances` are in the order of the means


# ---- sentences --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """What a verdict holds for."""

    measure: str  # the title of the deciding figure
    budget: Bilingual
    seeds: int  # the fewest that count of a model
    values: Mapping[str, str]  # the figures in words


def sentences(judged: Judged, said: Conditions, costs: Mapping[Bilingual, Mapping[str, float]]) -> list[Bilingual]:
    """Return the verdict: the first sentence is the choice by quality, others follow for time and memory."""
    return [_main(judged, said), *_by_cost(judged, said, costs)]


def _main(judged: Judged, said: Conditions) -> Bilingual:
    if judged.best is None:
        return Bilingual("No verdict: no model was measured.", "没有结论：没有测得任何模型。")
    value, budget = said.values[judged.best], said.budget
    if judged.naive is not None:
        return Bilingual(
            f"Take none of them: with {budget.en} the best, {judged.best} ({value} {said.measure}), is not surely"
            f" better than {judged.naive}.",
            f"都不推荐：在{budget.zh}的条件下，最好的 {judged.best}（{value} {said.measure}）也不能确定"
            f"优于 {judged.naive}。",
        )
    if judged.winner is not None:
        largest = max(judged.chances.values())
        chance = "p < 0.0005" if largest < 0.0005 else f"p ≤ {largest:.2g}"
        count = len(judged.chances)
        return Bilingual(
            f"Take {judged.winner}: with {budget.en} it is better than every other model, at {value} {said.measure}"
            f" ({chance} each, corrected for {count} comparison{'' if count == 1 else 's'}, {said.seeds} seeds).",
            f"选 {judged.winner}：在{budget.zh}的条件下，它以 {value} {said.measure} 优于其他每个模型"
            f"（各自 {chance}，已对 {count} 次比较做校正，{said.seeds} 个种子）。",
        )
    if len(judged.level) == 1:
        return Bilingual(
            f"Only {judged.best} was measured: {value} {said.measure} with {budget.en}.",
            f"只测得 {judged.best}：在{budget.zh}的条件下为 {value} {said.measure}。",
        )
    if said.seeds == 1:
        return Bilingual(
            f"No clear winner: one seed tells nothing about others; the best figure with {budget.en} is"
            f" {judged.best}'s, {value} {said.measure}.",
            f"没有明确的赢家：只有一个种子，无法区分；在{budget.zh}的条件下，数值最好的是"
            f" {judged.best}（{value} {said.measure}）。",
        )
    names = _list(judged.level)
    closest = max(judged.chances[name] for name in judged.level[1:])
    return Bilingual(
        f"No clear winner: with {budget.en}, {names.en} do not differ significantly (best {value} {said.measure}, p"
        f" up to {closest:.2g}, {said.seeds} seeds).",
        f"没有明确的赢家：在{budget.zh}的条件下，{names.zh} 没有显著差异（最好 {value} {said.measure}，"
        f"p 最大 {closest:.2g}，{said.seeds} 个种子）。",
    )


def _by_cost(judged: Judged, said: Conditions, costs: Mapping[Bilingual, Mapping[str, float]]) -> list[Bilingual]:
    found = []
    for cost, figures in costs.items():
        choice = cheapest(judged, figures) if judged.is_recommended else None
        if choice is None or judged.best is None:
            continue
        name, is_worse = choice
        share = figures[name] / figures[judged.best] if figures[judged.best] else 1.0
        if is_worse:
            found.append(
                Bilingual(
                    f"Where {cost.en} counts: {name} needs {share:.2g} times {judged.best}'s, for {said.values[name]} "
                    f"instead of {said.values[judged.best]} {said.measure}.",
                    f"若看重{cost.zh}：{name} 只需 {judged.best} 的 {share:.2g} 倍，为 {said.values[name]}，"
                    f"而不是 {said.values[judged.best]} {said.measure}。",
                )
            )
        else:
            found.append(
                Bilingual(
                    f"Where {cost.en} counts: {name}, the cheapest of those that do not differ.",
                    f"若看重{cost.zh}：选 {name}，它是无显著差异者中最省的。",
                )
            )
    return found


def _list(names: Sequence[str]) -> Bilingual:
    return Bilingual(f"{', '.join(names[:-1])} and {names[-1]}", "、".join(names[:-1]) + f" 与 {names[-1]}")
