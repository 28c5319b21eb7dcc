"""The plan of a comparison: data, models, budget and seeds, and the cells that follow from them.

A cell is one training: a model with a seed, and in a search with a rate. Its name is that of its run's folder.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from recollect.comparison.digests import changed
from recollect.core.errors import is_own
from recollect.core.serialize import FileError, write_file
from recollect.core.settings import SettingError
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.names import split_names
from recollect.runs.budget import parse_budget
from recollect.views.bilingual import Bilingual

NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)([kM]?)")
TIMES = {"": 1, "k": 1000, "M": 1_000_000}
KEYS = ("seconds", "steps", "tokens", "epochs")
SECONDS = 60.0  # of a training where no budget is given
WORDS = {
    "max_seconds": Bilingual("{} s of training each", "各训练 {} 秒"),
    "max_steps": Bilingual("{} updates each", "各 {} 次更新"),
    "max_tokens": Bilingual("{} symbols each", "各 {} 个符号"),
    "max_epochs": Bilingual("{} epochs each", "各 {} 个轮次"),
}


@dataclass(frozen=True)
class Plan:
    """What is compared, and within which budget."""

    data: str
    task: str
    models: tuple[str, ...]
    size: str = "tiny"
    limits: Mapping[str, float] = field(default_factory=lambda: {"max_seconds": SECONDS})
    parameters: int | None = None  # of every model, embeddings and output included; None: those of the size
    seeds: int = 3
    rates: tuple[float, ...] = ()  # tried for every model that learns; none: the task's own
    settings: JsonMapping = field(default_factory=dict)
    device: str = "auto"
    digests: Mapping[str, str] = field(default_factory=dict)  # of the files that are read

    @property
    def is_by_seconds(self) -> bool:
        """Whether trainings are compared after equal time: then none may disturb another's clock."""
        return "max_seconds" in self.limits

    @property
    def budget_in_words(self) -> Bilingual:
        """The budget as a verdict states it."""
        english = [WORDS[name].en.format(f"{limit:,g}") for name, limit in self.limits.items()]
        chinese = [WORDS[name].zh.format(f"{limit:,g}") for name, limit in self.limits.items()]
        if self.parameters is not None:
            english.append(f"{self.parameters:,} parameters each")
            chinese.append(f"各 {self.parameters:,} 个参数")
        return Bilingual(" and ".join(english), "、".join(chinese))

    def command(self, out: str) -> str:
        """Return the command that repeats the comparison."""
        budget = [f"{limit:.15g}{name.removeprefix('max_')}" for name, limit in self.limits.items()]
        budget += [] if self.parameters is None else [f"params={self.parameters}"]
        words = ["recollect", "compare", *split_names(self.data), "--task", self.task, "-m", ",".join(self.models)]
        words += ["--budget", ",".join(budget), "--seeds", str(self.seeds)]
        words += [] if self.size == "tiny" else ["--size", self.size]
        words += [] if self.device == "auto" else ["--device", self.device]
        words += ["--rates", ",".join(f"{rate:.15g}" for rate in self.rates)] if self.rates else []
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join([*words, "--out", out])

    def as_json(self) -> JsonObject:
        """Return the plan as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: JsonMapping) -> Plan:
        """Return the plan of plain data."""
        return cls(**{**saved, "models": tuple(saved["models"]), "rates": tuple(saved["rates"])})


@dataclass(frozen=True)
class Cell:
    """One training."""

    model: str
    seed: int
    rate: float | None = None  # None: the usual one

    @property
    def name(self) -> str:
        """The name of its run's folder."""
        rate = "" if self.rate is None else f"-rate{self.rate:g}"
        return f"{short_name(self.model)}{rate}-seed{self.seed}"


def short_name(model: str) -> str:
    """Return a model's name in tables: of user code, that of the class."""
    return model.rpartition(":")[2] if is_own(model) else model


def check_models(models: Sequence[str]) -> tuple[str, ...]:
    """Return the models; raise a SettingError for none, and for two of one name."""
    names = [short_name(model) for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not models or twice is not None:
        got = "none" if not models else f"{twice} twice"
        raise SettingError(f"-m: got {got}, expected models of different names, as in -m rnn,lstm,transformer")
    return tuple(models)


def parse_compared(text: str) -> tuple[dict[str, float], int | None]:
    """Return a budget as limits of the training, and the parameters of every model where they are given.

    60s, 1e6tok, steps=2000, params=1M, or one of the budgets with params, as in 60s,params=1M.
    """
    limits: dict[str, float] = {}
    parameters: int | None = None
    for word in (part.strip() for part in text.split(",")):
        key, is_named, value = word.partition("=")
        is_given = key == "params" and parameters is not None
        if is_named and key == "params":
            parameters = round(_number(value, word))
        else:
            found = parse_budget(f"{_number(value, word):.15g}{key}" if is_named and key in KEYS else word)
            is_given = bool(limits.keys() & found)
            limits |= found
        if is_given:
            raise SettingError(f"--budget: got {text!r}, expected each limit once, as in 60s,params=1M")
    return limits or {"max_seconds": SECONDS}, parameters


def _number(value: str, word: str) -> float:
    found = NUMBER.fullmatch(value)
    if found is None or float(found[1]) <= 0:
        raise SettingError(f"--budget: got {word!r}, expected 60s, 1e6tok, steps=2000 or params=1M, more than 0")
    return float(found[1]) * TIMES[found[2]]


# ---- the folder -------------------------------------------------------------------------------------


def keep_plan(plan: Plan, folder: Path) -> None:
    """Write the plan into a new folder; raise a FileError where the folder holds something else."""
    path = folder / "plan.json"
    if path.is_file():
        kept = read_plan(folder)
        if kept == plan:
            return
        name = changed(kept.digests, plan.digests)
        what = "holds another comparison"
        if replace(kept, digests=plan.digests) == plan:
            what = f"{name} has changed since the comparison in it began"
        raise FileError(f"{folder}: {what}; choose another with --out, or remove the folder")
    foreign = sorted(one.name for one in folder.glob("*") if one.name != ".lock")
    if foreign:
        raise FileError(f"{folder}: holds {foreign[0]!r} and is no comparison; choose another folder with --out")
    write_file(path, json.dumps(plan.as_json(), ensure_ascii=False, indent=1).encode() + b"\n")


def read_plan(folder: Path) -> Plan:
    """Return the plan of a folder."""
    try:
        return Plan.from_json(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(
            f"{folder / 'plan.json'}: cannot be read ({error}); remove the folder and compare again"
        ) from error
