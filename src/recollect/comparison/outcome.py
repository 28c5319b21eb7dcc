"""What came of a comparison: a row for each model, the verdict, and both as plain data and as a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from recollect.comparison.audit import audit
from recollect.comparison.contexts import growth_of
from recollect.comparison.entrants import Entrant
from recollect.comparison.plan import Cell, Plan, short_name
from recollect.comparison.processes import read_cell
from recollect.comparison.significance import Measured
from recollect.comparison.verdict import MEMORY, TIME, TOLERANCE, Conditions, Judged, judge, sentences
from recollect.core.machine import describe
from recollect.core.serialize import FileError
from recollect.core.task import Baseline, ItemScores
from recollect.core.types import JsonMapping, JsonObject
from recollect.runs.run import Run
from recollect.views.bilingual import Bilingual

TYPICAL = 1000  # symbols read, of the memory that a verdict compares
SHARED = ("measure", "definition", "lower_is_better")
FIGURES = ("parameters", "body_parameters", "speed", "peak_bytes", "seconds", "tokens", "updates")


@dataclass(frozen=True)
class Row:
    """One model of a comparison."""

    name: str
    model: str
    values: list[float]  # the deciding figure of each seed that counts
    mean: float
    spread: float  # over the seeds; NaN for one
    interval: tuple[float, float]
    figures: Mapping[str, float]  # means over the seeds
    counts: bool
    rate: float | None
    problems: list[str]  # of cells that are left out, with the reason
    cells: int = 1  # trainings, those that are left out among them
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    contexts: list[JsonObject] = field(default_factory=list)
    slopes: Mapping[str, float | None] = field(default_factory=dict)  # exponents of seconds and bytes by context
    by_position: list[float] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)  # step, symbols, seconds, validation figure
    sample: tuple[str, str] = ("", "")
    machines: list[str] = field(default_factory=list)  # on which its trainings ran

    @property
    def bytes_typical(self) -> float | None:
        """The bytes remembered after a typical number of symbols."""
        if not self.memory_bytes:
            return None
        key = min(self.memory_bytes, key=lambda read: (abs(int(read) - TYPICAL), read))
        return float(self.memory_bytes[key])


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: the folder, a row for each model, and the verdict in both languages."""

    folder: Path
    plan: Plan
    rows: list[Row]  # best first
    baselines: list[Baseline]
    judged: Judged
    verdict: list[Bilingual]
    measure: JsonObject  # its title, definition and direction
    machine: str

    @property
    def is_whole(self) -> bool:
        """Whether every cell was measured and counts."""
        return not any(row.problems for row in self.rows)

    def as_json(self) -> JsonObject:
        """Return it as plain data."""
        judged = {
            name: getattr(self.judged, name) for name in ("best", "winner", "level", "naive", "apart", "alike", "items")
        }
        return {
            "command": self.plan.command(str(self.folder)),
            "plan": self.plan.as_json(),
            "measure": self.measure,
            "verdict": {"en": [one.en for one in self.verdict], "zh": [one.zh for one in self.verdict]},
            "judged": judged | {"chances": dict(self.judged.chances)},
            "rows": [_finite(asdict(row)) for row in self.rows],
            "baselines": [asdict(one) for one in self.baselines],
            "machine": self.machine,
        }

    def __str__(self) -> str:
        widest = max([10, *(len(row.name) for row in self.rows)])
        lines = [f"{'':{widest}}  {self.measure.get('measure', ''):>20}  parameters"]
        for row in self.rows:
            lines.append(f"{row.name:{widest}}  {in_words(row):>20}  {row.figures.get('parameters', 0):>10,.0f}")
        lines += [f"{one.name:{widest}}  {one.value:>20.4g}" for one in self.baselines]
        return "\n".join([*lines, "", *(one.en for one in self.verdict)])


def in_words(row: Row) -> str:
    """Return the deciding figure of a model with its spread over the seeds."""
    if not row.values:
        return "–"
    if math.isnan(row.spread) or row.counts:
        return f"{row.mean:.4g}"
    return f"{row.mean:.4g} ± {row.spread:.2g}"


def micros_in_words(row: Row) -> str:
    """Return the microseconds in which a model reads a symbol; empty where they were not measured."""
    if "read_seconds" not in row.figures:
        return ""
    micros = 1e6 * row.figures["read_seconds"]
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.3g}"


def _finite(value: Any) -> Any:
    """Return plain data with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


# ---- assembly ---------------------------------------------------------------------------------------


def assemble(
    plan: Plan,
    folder: Path,
    entrants: Sequence[Entrant],
    cells: Mapping[str, Sequence[Cell]],
    baselines: Sequence[Baseline],
) -> Comparison:
    """Return what came of a comparison whose cells have run."""
    rows: list[Row] = []
    measured: list[Measured] = []
    measure: JsonObject = {}
    for entrant in entrants:
        row, items, found = _row(plan, folder, entrant, cells[entrant.model])
        measure = measure or {name: found[name] for name in SHARED if name in found}
        rows.append(row)
        if items:
            measured.append(Measured(row.name, items, entrant.counts))
    lower = bool(measure.get("lower_is_better", True))
    judged = judge(measured, lower, baselines)
    if judged.draws is not None:
        rows = [_with_interval(row, judged) for row in rows]
    sign = 1.0 if lower else -1.0
    rows.sort(key=lambda row: (not row.values, sign * row.mean if row.values else 0.0, row.name))
    verdict = _verdict(plan, rows, judged, measure)
    return Comparison(folder, plan, rows, list(baselines), judged, verdict, measure, "; ".join(_machines(rows)))


def _machines(rows: Sequence[Row]) -> list[str]:
    """Return the machines on which trainings ran, or this one if none did."""
    return sorted({one for row in rows for one in row.machines}) or [describe(torch.device("cpu"))]


def _row(
    plan: Plan, folder: Path, entrant: Entrant, cells: Sequence[Cell]
) -> tuple[Row, list[ItemScores], JsonMapping]:
    """Return a model's row, its items by seed, and what one of its cells tells."""
    found = [(cell, read_cell(folder, cell.name)) for cell in cells]
    problems = [entrant.problem] if entrant.problem else []
    kept = []
    for cell, one in found:
        problem = _problem(plan, folder, entrant, cell, one)
        if problem:
            problems.append(f"{cell.name}: {problem}")
        else:
            kept.append(one)
    items = [ItemScores(one["numerators"], one["denominators"], one["power"]) for one in kept]
    values = [one.value for one in items]
    own = Measured(short_name(entrant.model), items, entrant.counts)
    figures = {name: _mean([one[name] for one in kept]) for name in FIGURES if kept and kept[0].get(name) is not None}
    costs = _costs(folder, cells)
    contexts = costs.get("contexts", [])
    figures |= {"read_seconds": costs["read_seconds"]} if "read_seconds" in costs else {}
    first: JsonMapping = kept[0] if kept else {}
    row = Row(
        name=short_name(entrant.model),
        model=entrant.model,
        values=values,
        mean=own.mean if values else math.nan,
        spread=own.spread if values else math.nan,
        interval=(math.nan, math.nan),
        figures=figures,
        counts=entrant.counts,
        rate=first.get("rate"),
        problems=problems,
        cells=len(cells),
        memory_bytes=first.get("memory_bytes", {}),
        contexts=contexts,
        slopes={name: growth_of(contexts, name) for name in ("seconds", "bytes")} if contexts else {},
        by_position=list(map(_mean, zip(*(one["by_position"] for one in kept), strict=False))),
        curve=first.get("curve", []),
        sample=tuple(first.get("sample", ("", ""))),
        machines=sorted({one["machine"] for _, one in found if "machine" in one}),
    )
    return row, items, first


def _problem(plan: Plan, folder: Path, entrant: Entrant, cell: Cell, found: JsonMapping) -> str:
    """Return why a cell is left out; empty where it counts."""
    status = found.get("status", "not run")
    if status != "done":
        reason = found.get("problem", "")
        return f"{status} {reason}" if status == "killed" else f"{status}: {reason}" if reason else status
    if not math.isfinite(found["value"]):
        return f"the {found['measure']} is {found['value']}"
    if entrant.counts:
        return ""
    run = Run(folder / "runs" / cell.name)
    try:
        saved = run.saved()["run"]["training"]
        rows = run.metrics()
    except FileError as error:
        return str(error)
    given = {name: saved.get(name) for name in ("max_steps", "max_tokens", "max_seconds", "max_epochs")}
    if {name: limit for name, limit in given.items() if limit is not None} != dict(plan.limits):
        return f"another budget: {given}"
    return audit(rows, _in_symbols(plan.limits, found.get("epoch")))


def _in_symbols(limits: Mapping[str, float], epoch: int | None) -> Mapping[str, float]:
    """Return limits with those in epochs as symbols, which a log has; `epoch` is the symbols of one."""
    if epoch is None or "max_epochs" not in limits:
        return limits
    symbols = max(1, round(limits["max_epochs"] * epoch))
    return {**limits, "max_tokens": min(symbols, limits.get("max_tokens", symbols))}


def _costs(folder: Path, cells: Sequence[Cell]) -> JsonObject:
    found = (read_cell(folder, f"{cell.name}.costs") for cell in cells)
    return next((one for one in found if one), {})


def _with_interval(row: Row, judged: Judged) -> Row:
    assert judged.draws is not None
    if row.name not in judged.draws.values:
        return row
    return Row(**{**row.__dict__, "interval": judged.draws.interval(row.name)})


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _verdict(plan: Plan, rows: Sequence[Row], judged: Judged, measure: JsonMapping) -> list[Bilingual]:
    """Return the sentences of the verdict; the last name what is left out."""
    values = {row.name: in_words(row) for row in rows if row.values}
    compared = [row for row in rows if row.values and row.name not in judged.apart]
    seeds = min((len(row.values) for row in compared if not row.counts), default=plan.seeds)
    best = next((row.mean for row in compared if row.name == judged.best), math.nan)
    tolerated = f"{TOLERANCE * abs(best):.2g}"
    said = Conditions(str(measure.get("measure", "")), plan.budget_in_words, seeds, values, tolerated)
    time_of = "read_seconds" if plan.is_by_seconds else "seconds"
    costs = {
        TIME: {row.name: row.figures[time_of] for row in rows if time_of in row.figures and row.values},
        MEMORY: {row.name: row.bytes_typical for row in rows if row.bytes_typical is not None and row.values},
    }
    found = sentences(judged, said, costs)
    if plan.is_by_seconds and len(machines := _machines(rows)) > 1:
        found.append(
            Bilingual(
                f"Equal seconds were not equal: trainings ran on different machines ({'; '.join(machines)}).",
                f"秒数相同但条件不同：训练在不同的机器上进行（{'；'.join(machines)}）。",
            )
        )
    unknown = [row.name for row in rows if row.values and "read_seconds" not in row.figures]
    if unknown:
        names = ", ".join(unknown), "、".join(unknown)
        found.append(
            Bilingual(f"What these cost to use was not measured: {names[0]}.", f"未测得使用代价：{names[1]}。")
        )
    left = [problem for row in rows for problem in row.problems]
    if left:
        found.append(Bilingual(f"Left out: {'; '.join(left)}.", f"未计入：{'；'.join(left)}。"))
    return found
