"""What a run meets in the world: a disk that is full, at any write. The last checkpoint stays whole, and it says so."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recollect.core.serialize import WriteFailed
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin, resume
from recollect.training.checkpoint import Progress, newest_checkpoint, save_checkpoint
from recollect.training.optimizer import Optimizer

LIMIT = 100_000  # bytes: more than the log of metrics, less than the weights


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text("a stitch in time saves nine. " * 40, encoding="utf-8")
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "recollect", *words]


def train(text: Path, out: Path) -> list[str]:
    options = ["--budget", "20steps", "--batch", "4", "--steps", "8", "--set", "evaluate_every=5"]
    return command("train", str(text), "-m", "gru", "--out", str(out), *options)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_a_disk_that_fills_up_leaves_the_last_checkpoint_whole(text, tmp_path):
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    subprocess.run(train(text, whole), capture_output=True, check=True)
    with subprocess.Popen(
        [*train(text, halted), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if json.loads(line)["step"] == 7:  # two checkpoints are written; from here on nothing large can be
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
                break
        _, words = process.communicate()
    good, notices = newest_checkpoint(halted / "checkpoints")
    assert process.returncode == 1
    assert "Traceback" not in words
    assert "model.safetensors: cannot be written (File too large)" in words
    assert f"The last checkpoint, {good}, is intact. Resume with: recollect resume {halted}" in words
    assert not notices
    assert not list(halted.rglob("*.new"))

    subprocess.run(command("resume", str(halted)), capture_output=True, check=True)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (whole, halted))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def save(folder: Path, step: int) -> Path:
    torch.manual_seed(step)
    model = LanguageModel(LanguageConfig("gru", 7, width=4, layers=1))
    memory = model.initial_memory(2)
    return save_checkpoint(folder, model, Optimizer().build(model), memory, Progress(step=step), {"place": step})


@pytest.mark.parametrize("step", [1, 2], ids=["over the only one", "beside it"])
def test_any_call_that_finds_the_disk_full_says_what_is_left(step, tmp_path, monkeypatch):
    """A limit on sizes fails no folder, rename or flush, so each in turn is told that the disk is full."""
    folder = tmp_path / "run" / "checkpoints"
    before = save(folder, 1)
    for failing in range(100):
        with monkeypatch.context() as patch:
            fill_disk_at(failing, patch)
            words = words_of_saving(folder, step)
        if words is None:
            break
        assert "No space left on device" in words
        assert f"The last checkpoint, {before}, is intact. Resume with: recollect resume {tmp_path / 'run'}" in words
        assert sorted(p.name for p in folder.iterdir()) == ["step-00000001"]
        assert newest_checkpoint(folder) == (before, [])
    assert failing >= 12, "fewer places to fail than a save has"
    assert newest_checkpoint(folder)[0].name == f"step-0000000{step}"


def words_of_saving(folder: Path, step: int) -> str | None:
    try:
        save(folder, step)
    except WriteFailed as error:
        return str(error)
    return None


def fill_disk_at(failing: int, patch: pytest.MonkeyPatch) -> None:
    """Let the call of this number fail, of those that make folders, rename or flush."""
    calls = count()

    def told(function):
        def call(*args, **kwargs):
            if next(calls) == failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return call

    for name in ("mkdir", "replace", "fsync"):
        patch.setattr(os, name, told(getattr(os, name)))


def test_without_a_checkpoint_it_says_so(tmp_path, monkeypatch):
    fill_disk_at(2, monkeypatch)
    with pytest.raises(WriteFailed, match=r"No space left.*no checkpoint yet.*recollect resume .*run"):
        save(tmp_path / "run" / "checkpoints", 1)
    assert not list(tmp_path.rglob("*.safetensors*"))


def test_a_run_that_stopped_before_its_first_checkpoint_begins_again(text, tmp_path):
    recipe = RunConfig.make(str(text), "gru", max_steps=6, batch_size=4, steps=8, evaluate_every=3, dropout=0.2)
    whole, halted = Run(tmp_path / "whole"), Run(tmp_path / "halted")
    begin(recipe, whole, lambda row: None)
    begin(recipe, halted, lambda row: None)
    (halted.folder / "model.safetensors").unlink()
    shutil.rmtree(halted.checkpoints)
    told: list[str] = []
    resume(halted, lambda row: None, told.append)
    assert told == ["no checkpoint: training starts from step 0"]
    ours, theirs = (load_file(run.folder / "model.safetensors") for run in (whole, halted))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
