"""Files of the user's own: none is replaced by a run, a page, a record or a picture."""

from __future__ import annotations

import shlex

import pytest

from command_line import ask
from recollect.cli.outputs import OURS, check_output

TRAIN = ["train", "recall:count=200", "-m", "gru", "--budget", "1steps", "--batch", "2", "--set", "width=8", "--out"]


@pytest.fixture(autouse=True)
def place(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("mine", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "run", "a text", "--out"],
        ["bench", "--quick", "--out"],
        ["predict", "run", "a text", "--maps"],
        ["predict", "run", "a text", "--plot"],
    ],
    ids=["inspect", "bench", "maps", "plot"],
)
def test_a_file_of_the_users_is_not_replaced(words, place):
    (place / "run").mkdir()
    (place / "run" / "config.json").write_text("{}", encoding="utf-8")
    done = ask(*words, "mine.html", code=2)
    assert f"{words[-1]}: mine.html exists and was not written by recollect; nothing was overwritten" in done.stderr
    assert done.stderr.endswith(f"Try: {shlex.join(['recollect', *words, 'mine-2.html'])}\n")
    assert (place / "mine.html").read_text(encoding="utf-8") == "mine"


def test_the_page_of_inspect_may_be_written_again(place):
    (place / "text.txt").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    ask("train", "text.txt", "-m", "markov", "--out", "run")
    ask("inspect", "run", "the cat")
    assert OURS[0] in (place / "inspect.html").read_bytes()
    check_output("--out", "inspect.html")
    (place / "inspect.html").write_text("mine", encoding="utf-8")
    assert (
        "Try: recollect inspect run 'the cat' --out inspect-2.html" in ask("inspect", "run", "the cat", code=2).stderr
    )


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (["predict", "run", "a text", "--plot", "a.pdf"], "a.svg"),
        (["predict", "run", "a text", "--maps", "a.svg"], "a.html"),
        (["inspect", "run", "a text", "--out", "page"], "page.html"),
    ],
    ids=["plot", "maps", "inspect"],
)
def test_an_ending_that_would_not_be_what_is_in_the_file_is_refused(words, other, place):
    (place / "run").mkdir()
    (place / "run" / "config.json").write_text("{}", encoding="utf-8")
    done = ask(*words, code=2)
    assert f"{words[-2]}: got {words[-1]}, expected a name that ends in .{other.rpartition('.')[2]}" in done.stderr
    assert done.stderr.endswith(f"Try: {shlex.join(['recollect', *words[:-1], other])}\n")
    assert not (place / words[-1]).exists()


@pytest.mark.parametrize("mark", OURS)
def test_what_was_written_here_may_be_written_again(mark, place):
    (place / "old").write_bytes(b"\n" * 99 + mark)
    check_output("--out", "old")


def test_pictures_and_records_hold_their_mark(place):
    ask("train", "sine", "-m", "linear", "--budget", "1steps", "--out", "run")
    for name in ("a.svg", "a.html"):
        ask("predict", "run", "sine", "--plot", name)
        ask("predict", "run", "sine", "--plot", name)  # over itself
        assert b"<!-- recollect -->" in (place / name).read_bytes()


@pytest.mark.parametrize(
    ("out", "other"),
    [("mine.html", "mine.html-run"), ("mine.html/run", "runs/run"), ("dangling", "dangling-run")],
)
def test_a_run_is_not_made_in_a_file(out, other, place):
    (place / "dangling").symlink_to("nowhere")
    done = ask(*TRAIN, out, code=2)
    place_of = out.partition("/")[0]
    assert f"{place_of}: no folder, so no run can be made in it; choose another, as in --out {other}" in done.stderr
    assert done.stdout == ""
    ask(*TRAIN, other)


def test_a_folder_that_cannot_be_made_is_a_failed_run():
    done = ask(*TRAIN, "/proc/run", code=1)
    assert "/proc/run: cannot be written (No such file or directory); choose another --out" in done.stderr
