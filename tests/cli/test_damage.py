"""Runs whose files are damaged, missing or of another version: what is wrong, where, and what to type."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from command_line import ask

TRAIN = ["train", "recall:count=200", "-m", "gru", "--budget", "2steps", "--batch", "2", "--set", "width=8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.chdir(folder)
        ask(*TRAIN, "--out", "run")
    return folder / "run"


@pytest.fixture
def run(trained, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    return Path("run")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def test_a_run_that_was_moved_works_where_it_is(run):
    run.rename("another place")
    assert ask("generate", "another place", "a", "--tokens", "3").stdout.startswith("a")
    assert "recollect resume 'another place' --budget 5m" in ask("resume", "another place").stderr
    Path("link").symlink_to("another place")
    assert ask("evaluate", "link", "--json").stdout


@pytest.mark.parametrize("words", [["generate", "run", "a"], ["resume", "run"], ["evaluate", "run"], ["export", "run"]])
def test_a_run_of_another_version_is_refused_by_every_verb(words, run):
    saved = json.loads((run / "config.json").read_text(encoding="utf-8"))
    (run / "config.json").write_text(json.dumps(saved | {"version": 0}), encoding="utf-8")
    assert "run/config.json: a run of version 0, this version reads 3; train it again" in ask(*words, code=2).stderr


def test_damaged_weights_without_a_checkpoint_name_the_command_that_trains_them_again(run):
    cut(run / "model.safetensors")
    shutil.rmtree(run / "checkpoints")
    said = ask("generate", "run", "a", code=2).stderr
    assert "there is no checkpoint to restore it from. Train it again with: recollect resume run" in said
    assert "no checkpoint: training starts from step 0" in ask("resume", "run").stderr
    assert ask("generate", "run", "a", "--tokens", "3").stderr == ""


@pytest.mark.parametrize("damage", [cut, Path.unlink], ids=["cut", "missing"])
def test_a_tokenizer_that_cannot_be_read_is_named(damage, run):
    (run / "tokenizer.json").write_text("{" * 400, encoding="utf-8")
    damage(run / "tokenizer.json")
    for verb in ("generate", "evaluate"):
        said = ask(verb, "run", *(["a"] if verb == "generate" else []), code=2).stderr
        assert "run/tokenizer.json: damaged or not a tokenizer" in said
        assert "take the file from another copy of the run, or train a new run" in said


def test_a_damaged_line_of_a_log_is_named_by_its_number(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "mine\n", encoding="utf-8")
    number = len(path.read_text(encoding="utf-8").splitlines())
    said = ask("resume", "run", code=2).stderr
    assert f"run/metrics.jsonl, line {number}: damaged, it is no row of this run; delete that line" in said


def test_checkpoints_that_are_all_damaged_are_named(run):
    for path in run.glob("checkpoints/*/*.safetensors"):
        cut(path)
    assert "no intact checkpoint; train again" in ask("resume", "run", "--budget", "1steps", code=2).stderr
    assert ask("generate", "run", "a", "--tokens", "3").stdout.startswith("a")  # the result is whole
