"""Drawn combinations of settings, in and out of range: each is refused by name before the first update, or learns."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import recollect as rc
from generated_data import GENERATED
from recollect.core.settings import SettingError, _kinds, check
from recollect.runs.config import TrainingOptions, list_settings
from recollect.tasks.register import HOMES, task_named

DATA = {
    "language": "recall:count=3000",
    "translate": "reversed:count=80",
    "summarise": "dates:count=80",
    "caption": "shapes:count=40",
}
SMALL = {"width": 16, "batch_size": 4, "steps": 16, "evaluate_every": 100}  # unless they are drawn
OTHERS = GENERATED  # what decides is no loss, and need not improve in a few updates
UPDATES = 12
LEFT_OUT = (  # what names files, machines and budgets, and what takes minutes to compile
    *("field", "valid", "test", "device", "tensorboard", "compile", "precision", "seed"),
    *("max_steps", "max_tokens", "max_epochs", "max_seconds"),
)
SENSIBLE = {  # where the range is wider than what a person would choose and a few updates can learn with
    "rate": st.floats(1e-3, 1e-2),
    "dropout": st.floats(0.0, 0.5),
    "smoothing": st.floats(0.0, 0.5),
    "weight_decay": st.floats(0.0, 0.3),
    "clip_norm": st.none() | st.floats(0.1, 5.0),
    "clip_value": st.none() | st.floats(0.01, 1.0),
    "decay": st.floats(0.5, 1.0),
    "start": st.none() | st.floats(0.01, 0.2),
    "vocab_size": st.none() | st.integers(16, 400),
    "width": st.integers(1, 24),
    "patience": st.none() | st.integers(10, 20),  # an untrained model may need some updates
    "stages": st.integers(1, 40),
}


def declared(task: str) -> dict[str, tuple[Any, Any]]:
    """Return every setting of a task with its field and its type."""
    kind = task_named(task)
    owners = (kind.Config, kind.Options, TrainingOptions)  # a config also holds what is derived from the data
    return {f.name: (f, get_type_hints(owner)[f.name]) for owner in owners for f in fields(owner)}


def inside(name: str, field: Any, kind: Any) -> st.SearchStrategy[Any]:
    """Draw a value that the setting may have, near the lower end of its range."""
    if name in SENSIBLE:
        return SENSIBLE[name]
    kinds, choices = _kinds(field, kind)
    bounds = field.metadata.get("bounds", {})
    least = bounds.get("least", bounds.get("above", 0) + (0.01 if "above" in bounds else 0))
    drawn = {
        bool: st.booleans(),
        int: st.integers(int(least), int(least) + 24),
        float: st.floats(least, min(bounds.get("most", least + 1), bounds.get("below", math.inf) - 0.01)),
        str: st.sampled_from(choices or ("char",)),
        type(None): st.none(),
    }
    return st.one_of(*(drawn[k] for k in kinds))


def outside(field: Any, kind: Any) -> st.SearchStrategy[Any]:
    """Draw a value that the setting may not have."""
    bounds = field.metadata.get("bounds", {})
    beyond = {"least": -1, "above": 0, "below": 0, "most": 1}
    values = [limit + beyond[name] for name, limit in bounds.items()]
    return st.sampled_from([*values, math.nan, [1], "nonsense" if str not in _kinds(field, kind)[0] else 7])


@st.composite
def drawn_runs(draw: st.DrawFn, tasks: Mapping[str, str] = DATA) -> tuple[str, str, dict[str, Any]]:
    task = draw(st.sampled_from(sorted(tasks)))
    model = draw(st.sampled_from([family for family in task_named(task).families if family != "markov"]))
    known = declared(task)
    names = [row["name"] for row in list_settings(task, model) if row["name"] not in LEFT_OUT]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
    given = {}
    for name in chosen:
        is_inside = draw(st.integers(0, 7)) > 0
        given[name] = draw(inside(name, *known[name]) if is_inside else outside(*known[name]))
    return task, model, given


def try_out(task: str, model: str, given: dict[str, Any]) -> None:
    """Train, and see that it learns; or that it is refused by name with nothing trained, and for a reason."""
    rows: list[dict[str, Any]] = []
    known = {row["name"] for row in list_settings(task, model)}
    both = {name: value for name, value in SMALL.items() if name in known} | given
    with tempfile.TemporaryDirectory() as folder:
        shared = {"task": task, "model": model, "budget": f"{UPDATES}steps", "out": Path(folder) / "run"}
        refusal = refused((DATA | OTHERS)[task], report=rows.append, **shared, **both)
    losses = [row["train_loss"] for row in rows if "train_loss" in row]
    if refusal is not None:
        assert any(name in refusal for name in both), refusal
        assert not losses, "refused after it had begun"
        return
    assert all(is_allowed(*declared(task)[name], value) for name, value in given.items()), "not refused"
    valid = [value for row in rows for name, value in row.items() if name.startswith("valid_")]
    assert len(losses) in (0, UPDATES)  # none where a model is counted or computed
    assert all(map(math.isfinite, [*losses, *valid]))
    if task in DATA:
        first, *later = [row["valid_loss"] for row in rows if "valid_loss" in row]
        assert min(later) < first, (losses, first, later)


def refused(data: str, **given: Any) -> str | None:
    """Train, and return the error that the command line would show in one line; None: there was none."""
    try:
        rc.train(data, **given)
    except ValueError as error:
        return str(error)
    return None


def is_allowed(field: Any, kind: Any, value: Any) -> bool:
    try:
        check(field, kind, value)
    except SettingError:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


quick = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
many = settings(quick, max_examples=200)


@quick
@given(drawn_runs())
def test_a_few_drawn_runs_learn_or_are_refused_by_name(run):
    try_out(*run)


@pytest.mark.slow
@many
@given(drawn_runs())
def test_two_hundred_drawn_runs_learn_or_are_refused_by_name(run):
    try_out(*run)


@settings(quick, max_examples=6)
@given(drawn_runs(OTHERS))
def test_a_few_drawn_runs_of_other_tasks_train_or_are_refused_by_name(run):
    try_out(*run)


@pytest.mark.slow
@settings(quick, max_examples=100)
@given(drawn_runs(OTHERS))
def test_a_hundred_drawn_runs_of_other_tasks_train_or_are_refused_by_name(run):
    try_out(*run)


def test_every_task_is_drawn():
    assert set(HOMES) == {*DATA, *OTHERS}
