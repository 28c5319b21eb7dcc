"""Commands as processes of their own: one whose output nobody reads any more, and one beside a training."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest

from command_line import ask, run
from recollect.__main__ import main
from recollect.cli.main import _fail

COMMAND = [sys.executable, "-m", "recollect"]
TRAIN = [*COMMAND, "train", "recall:count=200", "-m", "gru", "--batch", "2"]
TRAIN += ["--set", "width=8", "--set", "evaluate_every=1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)


@contextmanager
def begun(*more: str, budget: str):
    """A training that has shown its first lines, and is ended with the block."""
    words = [*TRAIN, "--budget", budget, "--out", "run", *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def last_step() -> int:
    return json.loads(Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"]


@pytest.mark.parametrize(
    "more", [pytest.param([], id="lines"), pytest.param(["--json"], id="json", marks=pytest.mark.slow)]
)
def test_a_training_whose_output_is_no_longer_read_stops_and_can_be_resumed(more):
    with begun(*more, budget="1000000steps") as process:
        process.stdout.close()  # as `| head -1` does
        said = process.stderr.read()
        assert process.wait(120) == 130
    assert "stopped, everything is saved. Resume with: recollect resume run" in said
    assert "cannot be written" not in said
    assert "Traceback" not in said
    before = last_step()
    ask("resume", "run", "--budget", "2steps")
    assert last_step() == before + 2


def test_a_counted_model_whose_output_is_not_read_is_whole():
    reading, writing = os.pipe()
    os.close(reading)
    words = [*COMMAND, "train", "recall:count=200", "-m", "markov", "--out", "run"]
    subprocess.run(words, stdout=writing, capture_output=False, check=True)
    os.close(writing)
    assert ask("generate", "run", "a", "--tokens", "5").stdout.startswith("a")


def interrupted(words: list[str], seconds: float = 0.0, until: str = "") -> str:
    """Return what a command says that gets Ctrl-C after some seconds, or when a file is there."""
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while until and not Path(until).exists():
            assert process.poll() is None
            sleep(0.01)
        sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    assert process.returncode in (130, -signal.SIGINT)  # the shell shows 130 for both
    assert "Traceback" not in said
    return said


def test_ctrl_c_before_the_first_update_leaves_a_run_that_can_be_resumed():
    words = [*TRAIN[len(COMMAND) :], "--budget", "1000000steps", "--out", "run"]
    said = interrupted(words, until="run/config.json")
    assert "stopped, everything is saved. Resume with: recollect resume run" in said
    shutil.rmtree("run/checkpoints", ignore_errors=True)  # where there was one already
    done = ask("resume", "run", "--budget", "1steps")
    assert "no checkpoint: training starts from step 0" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, 1.0, 3.0])
def test_ctrl_c_says_how_a_command_is_started_again(seconds):
    ask(*TRAIN[len(COMMAND) :], "--budget", "1steps", "--out", "run")
    said = interrupted(["generate", "run", "a", "--tokens", "100000000"], seconds)
    heard = ("stopped. Again with: recollect generate run a --tokens 100000000", "before anything")
    assert not said or any(text in said for text in heard)  # nothing: Python had not begun yet


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(monkeypatch, capsys):
    monkeypatch.setattr("recollect.cli.main.main", lambda: raise_(KeyboardInterrupt))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "recollect: stopped before anything was done\n"


def test_a_mistake_of_several_processes_is_printed_once(monkeypatch, capsys):
    monkeypatch.setattr("recollect.cli.main.ALONE", 0.0)  # however long the first takes to be ended
    for rank in range(3):
        place = Path("attempt_0") / str(rank)
        place.mkdir(parents=True)
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(place / "error.json"))
        for problem in ("--batch: got 8 rows", *([f"process {rank} does not see it"] if rank == 2 else [])):
            with pytest.raises(SystemExit) as end:
                _fail(problem, 2)
            assert end.value.code == 2
    assert capsys.readouterr().err == "recollect: --batch: got 8 rows\nrecollect: process 2 does not see it\n"


def raise_(kind: type[BaseException]) -> None:
    raise kind


def test_a_run_generates_while_it_is_trained():
    with begun(budget="1000000steps") as process:
        found = run("generate", "run", "a", "--tokens", "5", "--seed", "1")
        assert process.poll() is None  # it is still being trained
    assert found.stdout.startswith("a")
    assert "run: not finished, these are the weights of step-" in found.stderr
    assert "Resume with: recollect resume run" in found.stderr
