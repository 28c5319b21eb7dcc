"""What a person sees while a model learns: figures, plain lines, JSON, and a live display on a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest

from recollect.core.observer import observed
from recollect.evaluation.likelihood import score_windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.runs.progress import (
    EvaluationLine,
    Figures,
    JsonRows,
    LiveDisplay,
    PlainLines,
    bytes_in_words,
    on_one_line,
    time_in_words,
)


def update(step: int, seconds: float, loss: float = 2.0, tokens: int = 100, share: float = 0.0) -> dict:
    return {"step": step, "tokens": tokens * step, "seconds": seconds, "train_loss": loss, "share": share}


def evaluation(step: int, loss: float, share: float = 0.0) -> dict:
    return {"step": step, "valid_loss": loss, "best": min(loss, 2.5), "share": share} | {
        "memory_bytes": 2048,
        "sample": "one\ntwo \x1b[31m",
    }


def test_speed_is_that_of_the_last_while():
    figures = Figures()
    for step in range(1, 11):
        figures.take(update(step, seconds=float(step)))  # 100 symbols a second …
    assert figures.speed == pytest.approx(100)
    for step in range(11, 1011):
        figures.take(update(step, seconds=10 + (step - 10) / 100))  # … then 10,000
    assert figures.speed == pytest.approx(10_000)


def test_the_training_loss_is_smoothed():
    figures = Figures()
    for step in range(1, 201):
        figures.take(update(step, step, loss=3.0 if step % 2 else 1.0))
    assert abs(figures.loss - 2.0) < 0.1


def test_the_time_left_counts_evaluations_and_begins_where_a_run_goes_on():
    now = [50.0]
    figures = Figures(clock=lambda: now[0])
    figures.take(update(1, 0.1, share=0.5))
    assert figures.left is None
    now[0] = 60.0  # ten seconds for a tenth of the budget, though only 0.1 of them were learning
    figures.take(update(2, 0.2, share=0.6))
    assert figures.left == pytest.approx(40)


def test_plain_lines_say_everything(capsys):
    lines = PlainLines()
    for row in (evaluation(0, 3.0), update(1, 1.0, share=0.25), update(2, 2.0, share=0.5), evaluation(2, 2.75, 0.5)):
        lines.show(row)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 4  # two evaluations, each with its sample
    for words in (
        "step      2",
        "valid 2.7500",
        "best 2.5000",
        "train 2.0000",
        "100 tokens/s",
        "memory 2.0 KiB",
        "left",
    ):
        assert words in shown[2]
    assert shown[3] == "  │ one⏎two ·[31m"


def test_json_rows_are_the_rows(capsys):
    JsonRows().show(evaluation(3, 2.0))
    assert json.loads(capsys.readouterr().out) == evaluation(3, 2.0)


def test_the_display_is_not_drawn_with_every_row(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    display = LiveDisplay(screen)
    for step in range(1, 2001):
        display.show(update(step, step / 1000, share=step / 2000))
    display.close()
    bars = screen.getvalue().count("100%") + len(re.findall(r" \d?\d%", screen.getvalue()))
    assert 2 <= bars < 200  # the first, the last, and four a second between
    assert "100%" in screen.getvalue()


@pytest.mark.slow
def test_a_terminal_gets_the_live_display(tmp_path):
    ours, theirs = pty.openpty()
    words = [
        "train",
        "recall:count=2000",
        "-m",
        "gru",
        "--budget",
        "6steps",
        "--batch",
        "4",
        "--steps",
        "16",
        "--out",
        "run",
    ]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "recollect", *words, "--set", "evaluate_every=3"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        shown = read_all(ours)
        process.communicate()
    assert process.returncode == 0
    assert "━" in shown
    assert "100%" in shown
    assert "\x1b[1A" in shown  # the display is drawn over itself
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert on_one_line(samples[-1]["prompt"] + samples[-1]["text"]) in shown


def read_all(end: int) -> str:
    parts = []
    try:
        while part := os.read(end, 65536):
            parts.append(part)
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    os.close(end)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("seconds", "words"), [(7.51, "7.5 s"), (59.94, "59.9 s"), (59.96, "1:00"), (75, "1:15"), (3700, "1:01:40")]
)
def test_times_in_words(seconds, words):
    assert time_in_words(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(40, "40 B"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB"), (5 << 40, "5120.0 GiB")],
)
def test_bytes_in_words(count, words):
    assert bytes_in_words(count) == words


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "is_shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_an_evaluation_shows_how_far_it_is_on_a_terminal(stream, is_shown):
    line = EvaluationLine(stream)
    model = LanguageModel(LanguageConfig("gru", 6, width=8))
    told = []
    with observed(lambda *progress: told.append(progress)):
        score_windows(model, np.zeros(65, dtype=np.int64), 16, batch_size=2)
    assert told == [("cold windows", 32, 64), ("cold windows", 64, 64)]
    line.show(*told[0])
    assert ("cold windows: 50% of 64" in stream.getvalue()) == is_shown
    line.close()
    assert stream.getvalue().endswith("\r") == is_shown
