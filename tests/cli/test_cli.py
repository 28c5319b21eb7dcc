"""The command line as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import recollect
from command_line import run


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


def test_an_unknown_language_is_refused_with_the_next_command():
    error = run("models", "--lang", "fr", code=2).stderr
    assert "'fr'" in error
    assert "recollect models --lang zh" in error


def test_an_unknown_verb_is_refused():
    assert "No such command" in run("remember", code=2).stderr
