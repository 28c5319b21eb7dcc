"""An untrained model of every family of every task, on small built-in data, with an input for it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from recollect.inspection.opened import Opened
from recollect.tasks.register import task_named

DATA = {
    "language": ("recall:count=300", "c3 a7 f1 ?a="),
    "translate": ("numbers:count=300", "twenty-one"),
    "summarise": ("reversed:count=300", "abcd"),
    "caption": ("shapes:count=40", None),
    "classify": ("kindness:count=300", "the film was not bad"),
    "tag": ("verbs:count=300", "they walk to the old bank"),
    "recommend": ("tastes:users=20,films=20,each=8", "user-3,film-4"),
    "forecast": ("seasons", "seasons"),
    "fill": ("seasons", "seasons"),
    "masked": ("recall:count=300", "c3 a7 f1 ?a="),
    "match": ("stories:count=60", None),
}
SMALL = {"width": 16, "layers": 1}


@cache
def opened_data(task_name: str) -> tuple[Any, Any]:
    kind = task_named(task_name)
    options = {"forecast": {"lookback": 24, "horizon": 6}}.get(task_name, {})
    task = kind(kind.Options(**options))
    return task, task.open(DATA[task_name][0])


def families() -> list[tuple[str, str]]:
    return [(name, family) for name in DATA for family in task_named(name).families]


def open_model(task_name: str, family: str, **settings: Any) -> tuple[Opened, Any]:
    """Return an untrained model as it is opened from a run, with other settings where given, and an input for it."""
    torch.manual_seed(0)
    task, data = opened_data(task_name)
    used = {name: value for name, value in SMALL.items() if name in task.settings(family)} | settings
    config = task.config(family, "tiny", data, used)
    model = task.build(vars(config)).eval()
    if family in ("markov", "majority"):
        task.fit(model, data)
    inputs = DATA[task_name][1]
    if inputs is None:
        inputs = data.test.pictures_of([0])[0] if task_name == "caption" else _question(data.test[0].question)
    facts = {"name": family, "family": family, "task": task_name}
    return Opened(model, task.assets(data), task, facts), inputs


def _question(question: Any) -> str:
    return f"{question.texts[0]} | {question.query}"
