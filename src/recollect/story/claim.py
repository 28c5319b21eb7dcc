"""A claim of the story, how it is put to the test, and what came of it.

A claim is one file in `story/claims/`. Its docstring declares it, so that all of them can be listed without importing
torch; its function `run(budget) -> Result` is the experiment:

    '''C12: An RNN cell has three weight matrices and two biases.

    中文：……
    Seed: 003_d30a3ba1164faeec.txt:67
    Budget: seconds
    Expected: the outputs with merged biases differ by at most 1e-12
    Rule: holds if the largest difference is at most 1e-12, else does not hold
    Exact: holds
    '''

Budget is seconds, minutes, gpu or source: a claim about history has a source and no experiment. A correction (an id
that begins with E) also has `Says` and `说法`, the statement of the seed in our words; its own text is what is right.
`Exact` is the verdict that the tests demand, and stands where nothing is drawn by chance. `Alone: yes` stands where
time is measured: nothing else runs beside it. `预期` translates Expected and `规则` Rule. `Cites: C71 holds, C72 does
not hold` takes the place of an experiment: the correction is right where those claims have those verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from recollect.core.types import JsonMapping, JsonObject
from recollect.views.bilingual import Bilingual

BudgetClass: TypeAlias = Literal["seconds", "minutes", "gpu", "source"]
Verdict: TypeAlias = Literal["holds", "holds if", "does not hold", "not shown"]
BUDGETS: tuple[BudgetClass, ...] = get_args(BudgetClass)
VERDICTS: Mapping[Verdict, Bilingual] = {
    "holds": Bilingual("holds", "成立"),
    "holds if": Bilingual("holds if …", "有条件成立"),
    "does not hold": Bilingual("does not hold", "不成立"),
    "not shown": Bilingual("not shown at this scale", "此规模下未能判定"),
}


@dataclass(frozen=True)
class Budget:
    """What an experiment may use: seeds, a device, and whether a smaller data set must do."""

    seeds: int = 5
    device: str = "cpu"
    is_small: bool = False  # for a test that only shows that the experiment runs


@dataclass(frozen=True)
class Control:
    """A trivial baseline: its name, and the deciding figure with it."""

    name: Bilingual
    value: float


@dataclass(frozen=True)
class Check:
    """A check that the experiment sees no answer that it must not see; where it fails the verdict is void."""

    name: Bilingual
    passed: bool


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """The figure of a result, as plain data."""

    title: Bilingual
    x: Bilingual
    y: Bilingual
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Result:
    """What came of an experiment."""

    verdict: Verdict
    found: Bilingual  # one sentence with the figures
    effect: float  # the figure that the rule judges
    interval: tuple[float, float]  # of it, 95 %; both ends are equal where nothing is drawn by chance
    baseline: Control
    leak: Check
    condition: Bilingual | None = None  # of "holds if"
    chart: Chart | None = None
    rows: Sequence[Mapping[str, Any]] = ()  # the figures behind it
    figures: Sequence[Any] = ()  # what the rule was given, where it is kept: intervals are pairs

    def judged(self) -> Result:
        """Return the result with its verdict void where the leak check failed."""
        if self.leak.passed:
            return self
        why = Bilingual(f"The leak check failed: {self.leak.name.en}.", f"泄漏检查未通过：{self.leak.name.zh}。")
        return Result(
            "not shown", why, self.effect, self.interval, self.baseline, self.leak, chart=self.chart, rows=self.rows
        )

    def as_json(self) -> JsonObject:
        """Return the result as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: JsonMapping) -> Result:
        """Return the result of plain data."""
        chart = saved["chart"]
        drawn = None if chart is None else _chart(chart)
        condition = None if saved["condition"] is None else Bilingual(*saved["condition"])
        baseline = Control(Bilingual(*saved["baseline"]["name"]), saved["baseline"]["value"])
        leak = Check(Bilingual(*saved["leak"]["name"]), saved["leak"]["passed"])
        low, high = saved["interval"]
        found = Bilingual(*saved["found"])
        return cls(
            saved["verdict"],
            found,
            saved["effect"],
            (low, high),
            baseline,
            leak,
            condition,
            drawn,
            saved["rows"],
            tuple(_pair(one) for one in saved.get("figures", ())),
        )


def _pair(saved: Any) -> Any:
    """Return an interval as the pair that it was before it was written."""
    return tuple(saved) if isinstance(saved, list) and len(saved) == 2 else saved


def _chart(saved: JsonMapping) -> Chart:
    words = {name: Bilingual(*saved[name]) for name in ("title", "x", "y")}
    curves = [Curve(one["name"], [(x, y) for x, y in one["points"]]) for one in saved["curves"]]
    return Chart(curves=curves, log_x=saved["log_x"], log_y=saved["log_y"], **words)


@dataclass(frozen=True)
class Claim:
    """What a file of `story/claims/` declares."""

    id: str
    module: str
    text: Bilingual
    seed: str  # file:line, several joined by commas
    budget: BudgetClass
    expected: Bilingual
    rule: str
    rule_zh: str = ""  # where it is translated
    says: Bilingual | None = None  # of a correction
    exact: Verdict | None = None
    is_alone: bool = False
    cites: tuple[tuple[str, Verdict], ...] = ()
    source_digest: str = ""  # of the file: a result of another version is measured again

    @property
    def is_correction(self) -> bool:
        """Whether it corrects a statement."""
        return self.id.startswith("E")

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"recollect claims {self.id}"
