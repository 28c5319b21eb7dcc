"""What `recollect doctor` reports of the C compiler and of decode steps."""

from __future__ import annotations

import json

import pytest

from command_line import ask
from recollect.accel.cpu import time_loop
from recollect.cli import doctor


@pytest.fixture(autouse=True)
def reasons(monkeypatch):
    """Keep what a missing compiler leaves behind from the tests that follow."""
    monkeypatch.setattr(time_loop, "REASONS", {})


def findings(stdout: str) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(stdout)["findings"]}


def test_doctor_repeats_the_steps_of_a_tiny_model(compiler):
    (found,) = doctor.check_generation()
    assert found.state == "ok"
    (found,) = doctor.check_compiler()
    assert found.state == "ok"


def test_doctor_without_a_compiler_says_why_and_is_content(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "/nonexistent")
    found = findings(ask("doctor", "--json").stdout)
    compiler = found["C compiler"]
    assert compiler["state"] == "absent"
    assert "/nonexistent not found" in compiler["says"]
    assert compiler["next"] == "CC=gcc recollect doctor"
    assert set(compiler) == {"name", "state", "says", "next"}


def test_doctor_with_a_compiler_that_fails_says_why(monkeypatch):
    monkeypatch.setenv("CC", "false")
    (compiler,) = doctor.check_compiler()
    assert compiler.state == "absent"
    assert "ended with 1" in compiler.says
