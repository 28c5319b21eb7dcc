"""The command line as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console

import recollect
from command_line import ask, run
from recollect.models.line import LINE


def test_version():
    assert run("--version").stdout == f"recollect {recollect.__version__}\n"


def test_help_does_not_wait_for_torch():
    script = "import sys\nfrom recollect.cli.main import app\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "models" in run("--help").stdout


def test_models_in_both_languages_and_as_json():
    listed = json.loads(run("models", "--json").stdout)
    names = [row["name"] for row in listed]
    assert names[0] == "markov"
    assert "lstm" in names
    assert names[-1] == "ttt-mlp"
    for language in ("en", "zh"):
        table = run("models", "--lang", language, env=os.environ | {"COLUMNS": "160"}).stdout
        assert "ttt-linear" in table
        assert listed[1]["idea"][language][:5] in table.replace("\n", "")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_models_are_readable_in_80_columns(language, monkeypatch):
    monkeypatch.setattr("recollect.cli.line_verbs.console", Console(width=80))
    lines = ask("models", "--lang", language).stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert all(any(f" {station.name} " in line for line in lines) for station in LINE)  # no name is cut or broken
    assert len(lines) <= 3.5 * len(LINE)


def test_one_model_is_told_whole_and_an_unknown_one_refused():
    (found,) = json.loads(ask("models", "lstm", "--json").stdout)
    assert (found["name"], found["step"]) == ("lstm", "O(d²)")
    assert "Hochreiter" in ask("models", "lstm", "--lang", "zh").stdout
    assert "did you mean lstm. Try: recollect models" in ask("models", "lsmt", code=2).stderr


def test_an_unknown_language_is_refused_with_the_next_command():
    error = run("models", "--lang", "fr", code=2).stderr
    assert "'fr'" in error
    assert "recollect models --lang zh" in error


def test_an_unknown_verb_is_refused():
    assert "No such command" in run("remember", code=2).stderr
