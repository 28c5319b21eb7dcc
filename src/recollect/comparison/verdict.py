"""The verdict of a comparison: which model to take, under which condition, how sure that is.

Rules 3 to 6 of docs/decisions/0024-comparisons.md, and the sentences that state what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recollect.comparison.significance import LEVEL, Draws, Measured, draw, holm
from recollect.core.task import Baseline
from recollect.views.bilingual import Bilingual

SURE = 0.95  # of the draws: a recommended model is better than every naive row
FEWEST = 8  # test items; with fewer, nothing is decided
TOLERANCE = 0.02  # of the best figure: a cheaper model is as good where it surely differs by no more
TIME = Bilingual("time", "时间")
MEMORY = Bilingual("memory", "内存")

Choice: TypeAlias = Literal["as good", "not distinguished", "worse"]


@dataclass(frozen=True)
class Judged:
    """What the rules give."""

    best: str | None  # the best mean; None: nothing was measured
    winner: str | None  # the best, where all others differ significantly
    level: tuple[str, ...]  # those that do not differ from the best, itself included, best first
    chances: Mapping[str, float]  # p of being equal to the best, corrected for all of them
    naive: str | None  # a naive row that the best does not surely beat
    draws: Draws | None = None
    apart: tuple[str, ...] = ()  # models with one seed, where others have more
    alike: tuple[str, ...] = ()  # those that surely differ from the best by no more than the tolerance
    beaten: tuple[str, ...] = ()  # those that beat every naive row
    items: int = FEWEST  # of the test part, that can be drawn again

    @property
    def is_short(self) -> bool:
        """Whether the test part has too few items to decide anything."""
        return self.items < FEWEST

    @property
    def is_recommended(self) -> bool:
        """Whether there is a model to take."""
        return self.best is not None and self.naive is None and not self.is_short


def judge(models: Sequence[Measured], lower_is_better: bool, naive: Sequence[Baseline] = ()) -> Judged:
    """Return the winner, or those between which there is no clear winner."""
    usable = sorted((m for m in models if m.seeds and all(map(math.isfinite, m.values))), key=lambda m: m.name)
    apart = _single(usable)
    usable = [m for m in usable if m.name not in apart]
    if not usable:
        return Judged(None, None, (), {}, None)
    sign = 1.0 if lower_is_better else -1.0
    order = sorted(usable, key=lambda m: (sign * m.mean, m.name))
    names = tuple(m.name for m in order)
    best, items = order[0], min(m.items for m in order)
    if items < FEWEST:
        unbeaten_row = _unbeaten(best, None, lower_is_better, naive)
        return Judged(best.name, None, names, {}, unbeaten_row, apart=apart, items=items)
    draws = draw(usable)
    chances = holm({name: draws.equality(best.name, name) for name in names[1:]})
    level = (best.name, *(name for name in names[1:] if chances[name] > LEVEL))
    winner = best.name if len(level) == 1 and len(order) > 1 else None
    unbeaten = {m.name: _unbeaten(m, draws, lower_is_better, naive) for m in order}
    beaten = tuple(name for name in names if unbeaten[name] is None)
    alike = _alike(order, draws)
    return Judged(best.name, winner, level, chances, unbeaten[best.name], draws, apart, alike, beaten, items)


def _single(models: Sequence[Measured]) -> tuple[str, ...]:
    """Return the models with one seed, where another that is trained has more."""
    if all(m.is_single or m.counts for m in models):
        return ()
    return tuple(m.name for m in models if m.is_single)


def _alike(order: Sequence[Measured], draws: Draws) -> tuple[str, ...]:
    """Return the models whose difference from the best, the first, surely lies within the tolerance.

    "Not significant" is not enough: where seeds or items are few, nothing is. The intervals hold together (Bonferroni).
    One without any width shows nothing either: every item of every seed is right, or wrong, with both models.
    """
    best, *others = order
    most = TOLERANCE * abs(best.mean)
    share = 1 - LEVEL / max(1, len(others))
    found = []
    for model in others:
        low, high = draws.difference(best.name, model.name, share)
        if -most <= low < high - 1e-6 * most and high <= most:  # NaN, of a single seed: not within
            found.append(model.name)
    return tuple(found)


def _unbeaten(model: Measured, draws: Draws | None, lower_is_better: bool, naive: Sequence[Baseline]) -> str | None:
    """Return the strongest naive row that a model does not beat in 95 % of the draws; by its mean, where none tell."""
    sign = 1.0 if lower_is_better else -1.0
    for row in sorted(naive, key=lambda one: sign * one.value):
        if draws is None or model.is_single:
            is_better = sign * model.mean < sign * row.value
        else:
            is_better = draws.better(model.name, row.value, lower_is_better) >= SURE
        if not is_better:
            return row.name
    return None


def cheapest(judged: Judged, costs: Mapping[str, float]) -> tuple[str, Choice] | None:
    """Return the model to look at where a cost counts, and how it stands to the best.

    Of those that cost less than the best and beat the naive rows: the cheapest that is as good, within the tolerance;
    else the cheapest that does not differ significantly; where the best stands alone, the best of those at half its
    cost. None: there is none of these, or the best one's cost is not known.
    """
    if judged.best is None or judged.best not in costs:
        return None
    most = costs[judged.best]
    cheaper = [name for name in judged.beaten if costs.get(name, math.inf) < most]  # in the order of the means
    groups: dict[Choice, Sequence[str]] = {"as good": judged.alike, "not distinguished": judged.level}
    for choice, group in groups.items():
        within = [name for name in cheaper if name in group]
        if within:
            return min(within, key=lambda name: (costs[name], name)), choice
    half = [name for name in cheaper if costs[name] <= most / 2]
    return (half[0], "worse") if half and len(judged.level) == 1 else None


# ---- sentences --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """What a verdict holds for."""

    measure: str  # the title of the deciding figure
    budget: Bilingual
    seeds: int  # the fewest that count of a model, those apart left out
    values: Mapping[str, str]  # the figures in words
    tolerated: str = ""  # by which models may differ that are as good


def sentences(judged: Judged, said: Conditions, costs: Mapping[Bilingual, Mapping[str, float]]) -> list[Bilingual]:
    """Return the verdict: the first sentence is the choice by quality, others follow for time and memory."""
    return [_main(judged, said), *_apart(judged, said), *_by_cost(judged, said, costs)]


def _main(judged: Judged, said: Conditions) -> Bilingual:
    if judged.best is None:
        return Bilingual("No verdict: no model was measured.", "没有结论：没有测得任何模型。")
    value, budget = said.values[judged.best], said.budget
    if judged.naive is not None:
        return Bilingual(
            f"Take none of them: with {budget.en} the best, {judged.best} ({value} {said.measure}), is not surely"
            f" better than the naive row {judged.naive}.",
            f"都不推荐：在{budget.zh}的条件下，最好的 {judged.best}（{value} {said.measure}）也不能确定"
            f"优于朴素基线 {judged.naive}。",
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
    if judged.is_short:
        only = "1 item" if judged.items == 1 else f"{judged.items} items"
        return Bilingual(
            f"No clear winner: the test part is too short to decide, with {only} that can be drawn again of at least"
            f" {FEWEST}; the best figure with {budget.en} is {judged.best}'s, {value} {said.measure}.",
            f"没有明确的赢家：测试集太短，无法判定（可重抽的样本只有 {judged.items} 个，至少需要 {FEWEST} 个）；"
            f"在{budget.zh}的条件下，数值最好的是 {judged.best}（{value} {said.measure}）。",
        )
    if len(judged.level) == 1:
        several = Bilingual(" with several seeds", "多个种子的") if judged.apart else Bilingual("", "")
        return Bilingual(
            f"Only {judged.best} was measured{several.en}: {value} {said.measure} with {budget.en}.",
            f"{several.zh}只测得 {judged.best}：在{budget.zh}的条件下为 {value} {said.measure}。",
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


def _apart(judged: Judged, said: Conditions) -> list[Bilingual]:
    """Return the sentence on models with one seed, where others have more."""
    if not judged.apart:
        return []
    figures = {name: f"{said.values[name]} {said.measure}" for name in judged.apart}
    english = ", ".join(f"{name} ({figure})" for name, figure in figures.items())
    chinese = "、".join(f"{name}（{figure}）" for name, figure in figures.items())
    return [
        Bilingual(
            f"Not compared, since one seed tells nothing about others: {english}.",
            f"只有一个种子，未参与比较：{chinese}。",
        )
    ]


def _by_cost(judged: Judged, said: Conditions, costs: Mapping[Bilingual, Mapping[str, float]]) -> list[Bilingual]:
    """Return a sentence for each cost by which another model than the best is worth a look."""
    found = []
    for cost, figures in costs.items():
        chosen = cheapest(judged, figures) if judged.is_recommended else None
        if chosen is None or judged.best is None:
            continue
        share = f"{figures[chosen[0]] / figures[judged.best]:.2g}"
        found.append(_on_cost(cost, *chosen, judged.best, share, said))
    return found


def _on_cost(cost: Bilingual, name: str, choice: Choice, best: str, share: str, said: Conditions) -> Bilingual:
    """Return the sentence on a model that costs a share of the best one's."""
    own, other, measure = said.values[name], said.values[best], said.measure
    if choice == "as good":
        return Bilingual(
            f"Where {cost.en} counts: {name}, with {share} times {best}'s, is as good: {own} against {other} {measure},"
            f" a difference of at most {said.tolerated} ({TOLERANCE:.0%} of the best) in {SURE:.0%} of the draws.",
            f"若看重{cost.zh}：选 {name}，只需 {best} 的 {share} 倍而效果相当：{own} 对 {other} {measure}，"
            f"在 {SURE:.0%} 的重抽中相差不超过 {said.tolerated}（最佳值的 {TOLERANCE:.0%}）。",
        )
    if choice == "not distinguished":
        return Bilingual(
            f"Where {cost.en} counts: {name} is cheaper, with {share} times {best}'s, but not distinguished from it:"
            f" {own} against {other} {measure}.",
            f"若看重{cost.zh}：{name} 更省，只需 {best} 的 {share} 倍，但两者未能区分：{own} 对 {other} {measure}。",
        )
    return Bilingual(
        f"Where {cost.en} counts: {name} needs {share} times {best}'s, for {own} instead of {other} {measure}.",
        f"若看重{cost.zh}：{name} 只需 {best} 的 {share} 倍，为 {own}，而不是 {other} {measure}。",
    )


def _list(names: Sequence[str]) -> Bilingual:
    return Bilingual(f"{', '.join(names[:-1])} and {names[-1]}", "、".join(names[:-1]) + f" 与 {names[-1]}")
