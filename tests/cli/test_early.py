"""What is refused before torch is imported, and the words of the command line in what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import MISSING, fields
from typing import get_type_hints

import pytest

from command_line import ask
from recollect.cli.declared import _declared, _owners
from recollect.cli.early import SIZES
from recollect.cli.main import _as_settings
from recollect.core.settings import is_plain
from recollect.models.sizes import TARGETS
from recollect.runs.config import TrainingOptions
from recollect.tasks.register import HOMES, task_named

REFUSED = [
    (["train", "nosuch.txt"], "nosuch.txt: no such file"),
    (["train", "python-doc"], "did you mean python-docs?"),
    (["train", "a.de,b.en", "--task", "translate"], "a.de: no such file"),
    (["train", "recall", "-m", "lsmt"], "did you mean lstm?"),
    (["train", "recall", "--task", "languag"], "did you mean language"),
    (["train", "recall", "--size", "huge"], "expected one of tiny, small, base"),
    (["train", "recall", "--budget", "soon"], "--budget: got 'soon'"),
    (["train", "recall", "--tokenizer", "letters"], "expected one of char, byte, word, space, bpe"),
    (["train", "recall", "--batch", "0"], "--batch: got 0, expected at least 1"),
    (["train", "recall", "--device", "gpu"], "--device: got 'gpu', expected auto, cpu, cuda or cuda:N"),
    (["train", "recall", "--set", "rate"], "expected NAME=VALUE"),
    (["plan", "nosuch.txt"], "nosuch.txt: no such file"),
    (["evaluate", "nowhere"], "nowhere: not a run"),
    (["resume", "nowhere"], "nowhere: not a run"),
    (["generate", "nowhere", "a"], "nowhere: not a run"),
    (["generate", ".", "a", "--temperature", "0"], "--temperature: got 0.0, expected more than 0; --greedy selects"),
    (["generate", ".", "a", "--top-p", "2"], "--top-p: got 2.0, expected more than 0 and at most 1"),
    (["generate", ".", "a", "--set", "min_p=2"], "--set min_p: got 2, expected 0 to 1"),
    (["generate", ".", "a", "--set", "repetition_penalty=0"], "--set repetition_penalty: got 0, expected more than 0"),
    (["generate", ".", "a", "--tokens", "-1"], "--tokens: got -1"),
    (["generate", ".", "a", "--beam", "0"], "--beam: got 0, expected at least 1"),
    (["generate", ".", "a", "--set", "speed=9"], "--set speed: no such setting of generate"),
]
REFUSED += [
    (["train", "nosuch", "--task", task, "--set", *bad], words)
    for task in HOMES
    for bad, words in (
        (["rate=-1"], "rate: got -1, expected a number, more than 0"),
        (["ratee=1"], f"ratee: no such setting of the task {task}; did you mean rate"),
        (["batch_size=many"], 'batch_size: got "many", expected a whole number'),
        (["width=0"], "width: got 0, expected a whole number, at least 1"),
        (["rate=0.1"], "nosuch: no such file"),
    )
]
REFUSED += [
    (["train", "verbs", "--task", "tag", "--set", "scheme=IOBX"], "scheme: got"),
    (["train", "kindness", "--set", "least=0"], "least: got 0"),
    (["train", "kindness", "--set", "valid=nosuch.tsv"], "nosuch.tsv: no such file"),
    (["train", "sine", "--set", "horizon=0"], "horizon: got 0, expected a whole number or null, at least 1"),
    (["train", "sine", "--horizon", "0"], "horizon: got 0, expected a whole number or null, at least 1"),
    (["train", ".", "--task", "forecast"], ".: a folder, expected a table of numbers"),
    (["train", "shapes", "--set", "grid=0"], "grid: got 0"),
    (["train", "a.csv,b.csv", "--task", "caption"], "a.csv: no such file"),
    (["predict", "nowhere", "a"], "nowhere: not a run"),
    (["embed", "nowhere", "a"], "nowhere: not a run"),
    (["export", "nowhere"], "nowhere: not a run"),
]
REFUSED += [
    (["train", "recall", "--bugdet", "3s"], "bugdet: no such setting of the task language; did you mean --budget?"),
    (["train", "recall", "--modle", "gru"], "modle: no such setting of the task language; did you mean --model?"),
    (["train", "recall", "--set", "layers=2", "width=0"], "width: got 0, expected a whole number, at least 1"),
    (["train", ""], "DATA: got '', expected a file, a folder, a glob, - or a built-in"),
    (["compare", "recall", "-m", "markov,lsmt"], "-m: got 'lsmt', which is no model; did you mean lstm?"),
    (["compare", "recall", "-m", ""], "-m: got '', which is no model; see: recollect models"),
    (["compare", "recall", "-m", "gru", "--bugdet", "3s"], "did you mean --budget?"),
    (["compare", "recall", "-m", "gru", "--set", "width=0"], "width: got 0, expected a whole number"),
    (["compare", "recall", "-m", "gru", "--task", "languag"], "did you mean language?"),
    (["compare", "nosuch.txt", "-m", "gru"], "nosuch.txt: no such file"),
    (["inspect", "nowhere/run", "a text"], "nowhere/run: not a run"),
    (["inspect", ".", "a text", "--out", "nosuch/a.html"], "Try: recollect inspect . 'a text' --out a.html"),
    (["bench", "--out", "nosuch/a.json"], "Try: recollect bench --out a.json"),
]
IN_ITS_OWN_PROCESS = """
import json, sys
from command_line import ask
found = [ask(*words, code=2).stderr for words in json.loads(sys.argv[1])]
print(json.dumps([found, "torch" in sys.modules]))
"""


@pytest.mark.parametrize(("words", "error"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_mistakes_are_refused_by_the_name_that_was_typed(words, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = ask(*words, code=2)
    assert error in done.stderr
    assert done.stdout == ""


def test_mistakes_do_not_wait_for_torch(tmp_path):
    script = f"import sys; sys.path.insert(0, {sys.path[0]!r})\n"
    folder = next(path for path in sys.path if path.endswith("tests"))
    script = f"import sys; sys.path.insert(0, {folder!r})\n{IN_ITS_OWN_PROCESS}"
    command = [sys.executable, "-c", script, json.dumps([words for words, _ in REFUSED])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    found, is_imported = json.loads(done.stdout)
    assert all(error in line for (_, error), line in zip(REFUSED, found, strict=True))
    assert not is_imported


@pytest.mark.parametrize("task", HOMES)
def test_what_is_read_from_the_source_is_what_the_classes_declare(task):
    kind = task_named(task)
    for place, real in zip(_owners(task), (TrainingOptions, kind.Options, kind.Config), strict=True):
        found = _declared(*place)
        with_default = {f.name: f for f in fields(real) if f.default is not MISSING}
        assert {name for name, own in found.items() if own is not None} <= with_default.keys() <= found.keys()
        hints = get_type_hints(real)
        unread = [name for name in with_default if found[name] is None and is_plain(hints[name])]
        assert len(unread) <= 1  # its choices are the names in a table of functions
        for name, own in found.items():
            if own is not None:
                assert [(f.default, f.metadata) for f in fields(own)] == [
                    (with_default[name].default, with_default[name].metadata)
                ]
                assert get_type_hints(own)[name] == hints[name]


def test_several_settings_may_follow_one_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["recollect"])
    words = ["train", "a=b.txt", "--set", "layers=2", "width=8", "a=b.txt", "--dropout", "0.1", "--", "--c=d", "e=f"]
    expected = ["train", "a=b.txt", "--set", "layers=2", "--set", "width=8"]
    rest = ["--set", "dropout=0.1", "--", "--c=d", "e=f"]
    assert _as_settings(words) == [*expected, "--set", "a=b.txt", *rest]
    (tmp_path / "a=b.txt").touch()
    assert _as_settings(words) == [*expected, "a=b.txt", *rest]  # a file that is there
    assert _as_settings(["generate", "run", "a=b"]) == ["generate", "run", "a=b"]


def test_the_sizes_that_are_checked_early_are_those_that_exist():
    assert tuple(TARGETS) == SIZES


def test_a_search_finds_the_likeliest_text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    ask("train", "text.txt", "-m", "markov", "--out", "run")
    assert ask("generate", "run", "the c", "--beam", "3", "--tokens", "12").stdout == "the cat sat on th\n"
    assert ask("generate", "run", "the c", "--beam", "3", "--stop", " on").stdout == "the cat sat\n"
    assert "--beam: it searches" in ask("generate", "run", "the c", "--beam", "3", "--greedy", code=2).stderr
