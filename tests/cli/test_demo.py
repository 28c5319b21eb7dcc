"""The parts of the demo: its folder, its figures, its tables."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from command_line import ask
from demo_outcome import finding, outcome
from recollect.cli.demo import Demo, clear_folder, station
from recollect.cli.demo_page import page, steps, verdict
from recollect.cli.demo_table import LiveTable, final_tables, next_steps
from recollect.core.serialize import FileError
from recollect.models.language import FAMILIES
from recollect.runs.run import Run

# ---- the folder ----------------------------------------------------------------------------------------


def test_an_earlier_demo_is_removed(tmp_path):
    lstm, rnn = tmp_path / "lstm", tmp_path / "rnn"
    (lstm / "checkpoints").mkdir(parents=True)
    (lstm / "config.json").write_text(json.dumps({"version": 1, "training": {"data": "python-docs"}}))
    rnn.mkdir()
    (rnn / ".lock").touch()  # a demo that was killed as it began
    (tmp_path / "report.html").touch()
    clear_folder(Demo(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "my-run", "lstm"])
def test_a_folder_with_anything_else_is_refused_and_left_alone(name, tmp_path):
    (tmp_path / "report.html").touch()
    if "." in name:
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir()
        config = {"version": 1, "training": {"data": "my-text.txt"}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match=f"holds '{name}', which is not of a demo.*recollect demo --out"):
        clear_folder(Demo(tmp_path))
    assert (tmp_path / name).exists()
    assert (tmp_path / "report.html").exists()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "lstm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="'lstm', which is not of a demo"):
        clear_folder(Demo(tmp_path / "demo"))


def test_two_demos_in_one_folder_are_refused(tmp_path):
    with Run(tmp_path).lock(), pytest.raises(FileError, match="another process is training here"):
        clear_folder(Demo(tmp_path))


def test_a_file_is_refused_with_the_next_command(tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    done = ask("demo", "--out", str(tmp_path / "file"), code=2)
    assert done.stderr.endswith(f"a file, expected a folder; try: recollect demo --out {tmp_path / 'file'}-2\n")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_seconds_that_cannot_be_are_refused(seconds):
    with pytest.raises(ValueError, match=r"--seconds: got .*, expected more than 0; try: recollect demo --seconds 15"):
        Demo(Path("demo"), seconds)


@contextmanager
def hearing_ctrl_c():
    """Begin processes that hear Ctrl-C, though this one may have been begun not to, as by a script in background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_ctrl_c_stops_it_and_says_how_to_begin_again(tmp_path):
    command = [sys.executable, "-u", "-m", "recollect", "demo", "--seconds", "1000", "--out", str(tmp_path / "demo")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with hearing_ctrl_c(), subprocess.Popen(command, **pipes) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("markov")
        process.send_signal(signal.SIGINT)
        _, words = process.communicate()
    assert process.returncode == 130
    assert f"stopped. Start again with: recollect demo --out {tmp_path / 'demo'}" in words


# ---- the page ------------------------------------------------------------------------------------------


def test_the_page_escapes_what_models_say():
    text = page(outcome(finding(said="The </dd><script>alert(1)</script> & so on")))
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; so on" in text


def test_the_best_family_is_marked():
    text = page(outcome(finding("rnn", 2.5), finding("lstm", 2.0)))
    best = text.partition('<tr class="best">')[2]
    assert best.strip().startswith('<th scope="row">lstm')


def test_who_remembered_is_said_by_their_answers():
    said = verdict((finding("markov"), finding("lstm")))
    assert (
        said.en == "Over 64 letters the note was remembered by lstm (100 %); no better than guessed by markov (10 %)."
    )
    assert said.zh == "隔着 64 个字母，记住便条的有 lstm (100 %)；与瞎猜无异的有 markov (10 %)。"


def test_a_demo_without_transformer_and_lstm_has_no_look_inside():
    text = page(outcome(finding("rnn"), attention=None, gates=()))
    assert "rc.record" not in text
    assert "rc.record" in page(outcome())


def test_ticks_are_round_numbers_within_the_axis():
    assert steps(0, 15.01, 5) == [0, 5, 10, 15]
    assert steps(1.1, 3.45, 5) == [1.5, 2.0, 2.5, 3.0]
    assert steps(0, 0.21, 5) == [0, 0.05, 0.1, 0.15, 0.2]


def test_every_family_has_its_place_in_the_line():
    assert {station(family).name for family in FAMILIES} >= {"markov", "transformer", "ttt-mlp"}


# ---- the terminal --------------------------------------------------------------------------------------


def console(is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=80, color_system=None)


def written(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_a_terminal_sees_the_loss_fall():
    target, moments = console(is_terminal=True), iter(range(100))
    with LiveTable(target, 15.0, clock=lambda: float(next(moments))) as table:
        table.learning("lstm", 0.0, [4.6])
        table.learning("lstm", 7.5, [4.6, 3.1, 2.0])
        table.finished(finding())
    for words in ("0.0 of 15 s", "7.5 of 15 s", "2.000", "█▄▁"):
        assert words in written(target)


def test_elsewhere_each_family_is_one_line():
    target = console(is_terminal=False)
    with LiveTable(target, 15.0) as table:
        table.learning("lstm", 7.5, [4.6, 3.1])
        assert not written(target)
        table.finished(finding())
    assert written(target) == "lstm              test loss 2.000 nats, 40,000 characters/s, notes 100 %\n"


def test_the_last_tables_fit_a_narrow_terminal_and_the_command_is_whole():
    target, result = console(is_terminal=False), outcome(finding("transformer", 1.9), finding("linear-attention"))
    target.print(final_tables(result))
    assert "1,638,400" in written(target)
    assert "…" not in written(target)
    assert "(unigram)" in written(target)
    assert max(map(len, written(target).splitlines())) <= 80
    assert "Why markov is ahead" in written(target)
    said = next_steps(result).splitlines()
    assert said[1] == "Next: recollect generate 'some place/transformer' 'The '"
    assert said[2] == "Look inside: recollect inspect 'some place' --open"


def test_the_next_commands_can_be_typed_where_the_demo_was_run(tmp_path, monkeypatch):
    """After `make demo` in a fresh clone, whose .venv/bin is not on the path."""
    monkeypatch.setattr("sys.argv", [".venv/bin/recollect", "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    said = next_steps(outcome()).splitlines()
    assert said[1].startswith("Next: .venv/bin/recollect generate ")
    assert said[2].startswith("Look inside: .venv/bin/recollect inspect ")
