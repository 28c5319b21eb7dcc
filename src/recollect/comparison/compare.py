"""`compare`: several models on the same data within the same budget, measured alike, with a verdict.

A comparison is a folder:

plan.json       what is compared
cells/          what was measured of each training, and why one was lost
runs/           a run for each training
compare.json    all figures, the verdict, and the command that repeats it
report.html     the same as a page
"""

from __future__ import annotations

import fcntl
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from recollect.comparison.cluster import cluster
from recollect.comparison.digests import digests_of
from recollect.comparison.entrants import Entrant, cell_config, enter
from recollect.comparison.outcome import Comparison, assemble
from recollect.comparison.plan import Cell, Plan, check_models, keep_plan, parse_compared
from recollect.comparison.processes import CellProgress, Slot, forget_unfinished, read_cell, run_cells, slots_for
from recollect.comparison.report import write_report
from recollect.comparison.trial import crashes
from recollect.core.errors import nearest
from recollect.core.serialize import FileError, write_file
from recollect.core.settings import SettingError
from recollect.core.task import Task
from recollect.core.types import JsonObject
from recollect.data.names import Named, join_names, split_names
from recollect.models.own import MakeLayer
from recollect.runs.config import RunConfig, list_settings
from recollect.tasks.register import guess_task

Look = Callable[[CellProgress], None]


def compare(
    data: Named,
    models: Sequence[str | MakeLayer],
    *,
    task: str | type[Task] | None = None,
    budget: str = "60s",
    size: str = "tiny",
    seeds: int = 3,
    rates: Sequence[float] = (),
    device: str = "auto",
    out: str | Path = "comparison",
    jobs: int | None = None,
    ray: bool = False,
    look: Look = lambda progress: None,
    **settings: Any,
) -> Comparison:
    """Compare models on the same data within the same budget, and return the verdict with all that was measured.

    models: names, or layers of one's own: classes that a Python file defines, or path/to/file.py:Name. budget: 60s,
    1e6tok, steps=2000, params=1M, or one with params, as in "60s,params=1M". rates: learning rates that are tried for
    every model with the first seed; the best on the validation part is used. settings: as those of `train`, for every
    model that uses them. ray: trainings run on the machines of a Ray cluster. A comparison that was stopped is
    continued by the same call.

    >>> import tempfile
    >>> found = rc.compare("recall:count=200", ["markov"], out=tempfile.mkdtemp() + "/compared")
    >>> [row.name for row in found.rows], [row.name for row in found.baselines]
    (['markov'], ['uniform', 'unigram'])
    >>> found.verdict[0].en[:24]
    'Only markov was measured'
    """
    named = join_names(data)
    if named == "-":
        raise SettingError("DATA: got -, expected a file or a built-in: every training reads the data again")
    limits, parameters = parse_compared(budget)
    if seeds < 1:
        raise SettingError(f"--seeds: got {seeds}, expected at least 1")
    names = check_models([model if isinstance(model, str) else file_of(model) for model in models])
    of_task = task if isinstance(task, str) else file_of(task) if task else guess_task(named)
    read = [*split_names(named), of_task, *names, *(value for value in settings.values() if isinstance(value, str))]
    given = (seeds, tuple(rates), dict(settings), device)
    plan = Plan(named, of_task, names, size, limits, parameters, *given, digests=digests_of(read))
    return run_plan(plan, Path(out), jobs, look, ray)


def file_of(made: Any) -> str:
    """Return path/to/file.py:Name of a class or function, which the processes of the cells can load."""
    try:
        path = inspect.getsourcefile(made)
    except TypeError:
        path = None
    if path is None or "." in made.__qualname__ or not Path(path).is_file():
        raise SettingError(
            f"{made.__qualname__}: cannot be loaded by another process; define it at the top of a Python file"
        )
    return f"{path}:{made.__qualname__}"


def run_plan(plan: Plan, folder: Path, jobs: int | None, look: Look, ray: bool = False) -> Comparison:
    """Run or continue a comparison in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        crashed = crashes(plan, folder)
        task, dataset = open_data(plan, crashed)
        keep_plan(plan, folder)
        (folder / "cells").mkdir(exist_ok=True)
        references = [name for name in getattr(task, "reference_models", ()) if name not in plan.models]
        entrants = [Entrant(model, problem=problem) for model, problem in crashed.items()]
        entrants += [enter(plan, model, dataset) for model in (*plan.models, *references) if model not in crashed]
        with cluster(plan, folder, jobs) if ray else here(plan, jobs) as slots:
            rates = _search(plan, entrants, folder, slots, look)
            cells = {entrant.model: cells_of(plan, entrant, rates.get(entrant.model)) for entrant in entrants}
            _run(entrants, [cell for some in cells.values() for cell in some], folder, slots, look)
            _measure_costs(cells, folder, slots, look)
        outcome = assemble(plan, folder, entrants, cells, task.baselines(dataset))
        write_file(
            folder / "compare.json", json.dumps(outcome.as_json(), ensure_ascii=False, indent=1).encode() + b"\n"
        )
        write_report(outcome, folder / "report.html")
    return outcome


@contextmanager
def here(plan: Plan, jobs: int | None) -> Iterator[list[Slot]]:
    """Yield the places of this machine."""
    yield slots_for(plan.device, jobs, plan.is_by_seconds)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a comparison's folder; raise a FileError where another process works in it."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FileError(f"{folder}: another comparison works here; choose another folder with --out") from error
        yield


def open_data(plan: Plan, crashed: Mapping[str, str]) -> tuple[Task, Any]:
    """Return the task with the comparison's settings and the data; raise what is wrong with either, or every model."""
    configs: list[RunConfig] = []
    problems: list[Exception] = [SettingError(problem) for problem in crashed.values()]
    for model in (one for one in plan.models if one not in crashed):
        try:
            configs.append(cell_config(plan, model, 0, {}))
        except (ValueError, AssertionError) as error:
            problems.append(error)
    if not configs:
        raise problems[0]
    used = {row["name"] for config in configs for row in list_settings(config.task, config.family)}
    for name in plan.settings.keys() - used:
        raise SettingError(f"{name}: neither the task {plan.task} nor any of the models uses it{nearest(name, used)}")
    of_task = {f.name for f in fields(configs[0].options)}
    settings = {name: value for name, value in plan.settings.items() if name in of_task}
    config = cell_config(plan, configs[0].family, 0, settings)
    opened = config.make_task()
    return opened, opened.open(config.data)


def cells_of(plan: Plan, entrant: Entrant, rate: float | None) -> list[Cell]:
    """Return the cells of a model: one for each seed, a single one of a model that counts."""
    if entrant.problem:
        return []
    return [Cell(entrant.model, seed, rate) for seed in range(1 if entrant.counts else plan.seeds)]


def _search(
    plan: Plan, entrants: Sequence[Entrant], folder: Path, slots: Sequence[Slot], look: Look
) -> dict[str, float | None]:
    """Train every model that learns once with each rate, and return the rate of the best validation figure."""
    learners = [one for one in entrants if not one.problem and not one.counts]
    trials = [Cell(one.model, 0, rate) for one in learners for rate in plan.rates]
    _run(entrants, trials, folder, slots, look)
    chosen: dict[str, float | None] = {}
    for one in learners if plan.rates else []:
        found = [(cell.rate, read_cell(folder, cell.name)) for cell in trials if cell.model == one.model]
        done = [(rate, cell) for rate, cell in found if cell.get("status") == "done" and cell["curve"]]
        sign = 1 if not done or done[0][1]["lower_is_better"] else -1
        chosen[one.model] = min(done, key=lambda pair: _best(pair[1], sign))[0] if done else plan.rates[0]
    return chosen


def _best(cell: JsonObject, sign: int) -> float:
    return float(min(sign * row[3] for row in cell["curve"]))


def _run(entrants: Sequence[Entrant], cells: Sequence[Cell], folder: Path, slots: Sequence[Slot], look: Look) -> None:
    """Run those of the cells that have no result yet."""
    settings = {one.model: one.settings for one in entrants}
    for cell in cells:
        told = {"model": cell.model, "seed": cell.seed, "settings": settings[cell.model], "rate": cell.rate}
        path = folder / "cells" / f"{cell.name}.told.json"
        write_file(path, json.dumps(told, ensure_ascii=False).encode() + b"\n")
    due = forget_unfinished(folder, [cell.name for cell in cells])
    if due:
        run_cells(folder, due, slots, look)


def _measure_costs(cells: dict[str, list[Cell]], folder: Path, slots: Sequence[Slot], look: Look) -> None:
    """Measure what each model costs to use, one at a time: nothing else runs beside it."""
    firsts = [
        next((c for c in some if read_cell(folder, c.name).get("status") == "done"), None) for some in cells.values()
    ]
    due = [one.name for one in firsts if one and not (folder / "cells" / f"{one.name}.costs.json").is_file()]
    if due:
        run_cells(folder, due, slots[:1], look, "costs")
