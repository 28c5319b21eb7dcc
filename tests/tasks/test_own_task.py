"""A task that the package does not have goes through every verb; an option of another task is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from sum_task import SumTask

import recollect as rc
from command_line import ask, check_equal_weights, killed_at, run
from recollect.core.task import Task
from recollect.runs.plan import forecast
from recollect.runs.train import configure
from recollect.tasks.register import HOMES, task_named

FILE = f"{Path(__file__).parent / 'sum_task.py'}:SumTask"


def test_it_is_one_short_file():
    lines = Path(__file__).with_name("sum_task.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) < 80


def test_python_trains_evaluates_predicts_and_loads_it(tmp_path):
    run = rc.train("any", task=SumTask, budget="200steps", out=tmp_path / "run", rate=0.02, evaluate_every=50)
    naive = float((run.dataset().y - run.dataset().y.mean()).abs().mean())
    assert run.evaluate().value < naive / 3
    again = rc.load(tmp_path / "run", task=SumTask)
    assert abs(float(again.predict("0.1 0.2 0.3 0.4 0.5")[0].targets[0].text) - 1.5) < 0.3
    assert [row["valid_error"] for row in again.metrics() if "valid_error" in row][-1] < naive / 3
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "A model of sums" in card
    assert "best validation error" in card
    assert "求和模型" in card


def test_a_plan_is_made_for_it():
    facts = forecast(configure("any", task=SumTask, budget="100steps"), seconds=0.05)
    assert facts["fits"]
    assert facts["updates"] == 100
    assert facts["memory_bytes"] == {"5": 64}


@pytest.mark.slow
def test_the_command_line_trains_it_is_killed_and_resumes_bit_equal(tmp_path):
    whole, killed = str(tmp_path / "whole"), str(tmp_path / "killed")
    options = ["--task", FILE, "--budget", "40steps", "--set", "evaluate_every=4"]
    trained = run("train", "any", *options, "--out", whole)
    assert f"recollect predict {whole}" in trained.stderr
    assert f"--task {FILE}" in trained.stderr
    killed_at(13, "train", "any", *options, "--out", killed)
    ask("resume", killed, "--task", FILE)
    check_equal_weights(whole, killed)
    assert "error" in ask("evaluate", whole, "--task", FILE).stdout
    assert ask("predict", whole, "0.1 0.2", "--task", FILE).stdout.startswith("0.1 0.2\t")


def test_its_code_is_not_loaded_unasked(tmp_path):
    rc.train("any", task=FILE, budget="2steps", out=tmp_path / "run")
    done = run("evaluate", str(tmp_path / "run"), code=2)
    assert f"--task {FILE}" in done.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--set", "lowercase=true"], "lowercase: no such setting"),
        (["--tokenizer", "char"], "tokenizer: no such setting"),
        (["--set", "batch_size=0"], "batch_size: got 0, expected a whole number, at least 1"),
        (["-m", "lstm"], "model: got 'lstm', expected one of gru for the task sum"),
    ],
)
def test_what_is_not_its_own_is_refused(options, error, tmp_path):
    assert error in ask("train", "any", "--task", FILE, *options, "--out", str(tmp_path / "r"), code=2).stderr


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nowhere.py:Task", "there is no file 'nowhere.py'"),
        (FILE.replace("SumTask", "SumTsk"), "defines no 'SumTsk'; did you mean SumTask"),
        (FILE.replace("SumTask", "Summer"), "not a task, it lacks name, Options"),
        ("sums", "got 'sums', expected one of language, masked, translate, summarise, caption"),
    ],
)
def test_a_task_that_is_none_is_refused(name, error, tmp_path):
    assert error in ask("train", "any", "--task", name, "--out", str(tmp_path / "r"), code=2).stderr


@pytest.mark.parametrize("name", HOMES)
def test_every_task_has_all_of_the_protocol(name):
    kind = task_named(name)
    members = {m for m in vars(Task) if not m.startswith("_")} | set(Task.__annotations__)
    members.discard("loss")  # made with the options
    assert {m for m in members if not hasattr(kind, m)} == set()
    assert kind.default_model in kind.families
