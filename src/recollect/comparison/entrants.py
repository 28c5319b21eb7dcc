"""The models of a comparison: which settings each gets, how many parameters it has, and why one cannot take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from recollect.comparison.plan import Plan
from recollect.core.meta import on_meta
from recollect.core.settings import SettingError
from recollect.core.types import JsonObject
from recollect.data.names import split_names
from recollect.models.parameters import count_apart
from recollect.runs.config import RunConfig, list_settings
from recollect.runs.train import configure, counts

WIDEST = 4096
CLOSE = 0.05  # of the parameters asked for


@dataclass(frozen=True)
class Entrant:
    """A model of the plan."""

    model: str
    counts: bool = False  # it has no parameters and is fitted by counting: one cell, no seed
    parameters: int = 0
    settings: JsonObject = field(default_factory=dict)
    problem: str = ""  # why it cannot take part


def enter(plan: Plan, model: str, dataset: Any) -> Entrant:
    """Return a model as it takes part; its problem where it cannot."""
    try:
        config = cell_config(plan, model, 0, used_settings(plan, model))
        total = count_parameters(config, dataset)
        if plan.parameters is not None and total:
            config, total = _of_size(config, plan.parameters, dataset)
        return Entrant(model, total == 0, total, used_settings(plan, model) | _width_of(config, plan))
    except (ValueError, AssertionError) as error:  # a LawBroken is an AssertionError
        return Entrant(model, problem=str(error).splitlines()[0])


def cell_config(plan: Plan, model: str, seed: int, settings: Mapping[str, Any], rate: float | None = None) -> RunConfig:
    """Return the config of one run."""
    (first, limit), *others = plan.limits.items()
    budget = f"{limit:.15g}{first.removeprefix('max_')}"
    more = {**settings, **dict(others), **({} if rate is None else {"rate": rate})}
    base: dict[str, Any] = {"task": plan.task, "model": model, "size": plan.size, "device": plan.device}
    return configure(split_names(plan.data), budget=budget, seed=seed, **base, **more)


def used_settings(plan: Plan, model: str) -> JsonObject:
    """Return those of the plan's settings that a model uses."""
    if not plan.settings:
        return {}
    config = cell_config(plan, model, 0, {})
    known = {row["name"] for row in list_settings(config.task, config.family)}
    return {name: value for name, value in plan.settings.items() if name in known}


def count_parameters(config: RunConfig, dataset: Any) -> int:
    """Return the number of all parameters of a run's model."""
    task = config.make_task()
    made = task.config(config.family, config.size, dataset, config.settings)
    with on_meta():
        model = task.build(asdict(made))
    return 0 if counts(model) else count_apart(model).total


def _width_of(config: RunConfig, plan: Plan) -> JsonObject:
    """Return the settings that were chosen for the number of parameters."""
    names = () if plan.parameters is None else ("width", "hidden")
    return {name: config.settings[name] for name in names if name in config.settings}


def _of_size(config: RunConfig, wanted: int, dataset: Any) -> tuple[RunConfig, int]:
    """Return the config with the number of parameters asked for, within 5 %.

    The width meets it as nearly as heads allow, a feed-forward network of another size the rest.
    """
    names = {row["name"] for row in list_settings(config.task, config.family)}
    if "width" not in names:
        raise SettingError(f"{config.family}: has no setting width, so that its parameters cannot be chosen")
    step = 8 if "heads" in names else 1  # heads divide the width, rotary positions need even ones
    found = _greatest(config, "width", step, wanted, dataset)
    if abs(found[1] - wanted) > CLOSE * wanted and "hidden" in names:
        found = _greatest(found[0], "hidden", 1, wanted, dataset)
    if abs(found[1] - wanted) > CLOSE * wanted:
        raise SettingError(
            f"{config.family}: has {found[1]:,} parameters, expected {wanted:,} within 5 %; choose another params="
        )
    return found


def _greatest(config: RunConfig, name: str, step: int, wanted: int, dataset: Any) -> tuple[RunConfig, int]:
    """Return the config with the greatest value of a setting that does not exceed a number of parameters."""

    def made(times: int) -> RunConfig:
        return replace(config, settings={**config.settings, name: times * step})

    low, high = 1, WIDEST // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_parameters(made(middle), dataset) <= wanted else (low, middle - 1)
    return made(low), count_parameters(made(low), dataset)
