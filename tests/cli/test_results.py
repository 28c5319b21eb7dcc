"""What a command tells about its result, where a user would otherwise take it for something else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from command_line import ask
from recollect.tasks.register import HOMES, task_named

SMALL = ["-m", "gru", "--set", "width=8", "--set", "optimiser=sgd", "--set", "clip_norm=null"]


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_result_that_no_training_made_better_is_told():
    words = ["train", "recall:count=200", *SMALL, "--budget", "3steps", "--out", "run"]
    said = ask(*words, "--set", "rate=300").stderr
    assert "no evaluation was better than that before the first update: the result is the model as it began" in said
    assert "Train it further with: recollect resume run --budget 5m" in said


def test_a_result_that_became_better_is_not_told():
    words = ["train", "recall:count=200", *SMALL, "--budget", "3steps", "--out", "run"]
    assert "as it began" not in ask(*words, "--set", "rate=1").stderr


DATA = {
    "language": ["recall:count=200"],
    "masked": ["recall:count=200", "--task", "masked"],
    "translate": ["reversed:count=60"],
    "summarise": ["reversed:count=60", "--task", "summarise"],
    "caption": ["shapes:count=40"],
    "classify": ["kindness"],
    "tag": ["verbs:count=60"],
    "match": ["reports:count=60"],
    "recommend": ["tastes"],
    "forecast": ["sine"],
    "fill": ["sine", "--task", "fill"],
}


def test_every_task_has_its_data_here():
    assert DATA.keys() == HOMES.keys()


@pytest.mark.parametrize(
    "task", [name if name in ("recommend", "fill") else pytest.param(name, marks=pytest.mark.slow) for name in DATA]
)
def test_every_task_has_a_model_by_default_and_the_next_command_works(task):
    said = ask("train", *DATA[task], "--budget", "2steps", "--out", "run").stderr
    assert f"recollect: {task_named(task).default_model}, tiny: " in said
    assert json.loads(Path("run/config.json").read_text(encoding="utf-8"))["run"]["task"] == task
    _, verb, *words = shlex.split(said.rpartition("Next: ")[2])
    assert ask(verb, *words).stdout.strip()
    assert ask("evaluate", "run").stdout.strip()
