"""A config.json that was edited: whatever stands in an entry, a command uses it or refuses it by name."""

from __future__ import annotations

import copy
import json
import random
import re
import shutil

import pytest

import recollect as rc
from command_line import ask
from recollect.core.serialize import FileError

MISSING = object()
VALUES = [None, True, -1, 0, 0.5, 3, 10**7, 10**30, float("nan"), float("inf"), "", "x", "../x", [], {}, [1], MISSING]
LONGER = {"run.training", "run.training.max_steps"}  # may be set to a larger budget, or to none
LONGER |= {"run.training.compile", "run.training.tensorboard"}  # torch imports of theirs warn
DATA = {"language": ("recall:count=200", "lstm"), "translate": ("reversed:count=60", "luong")}
DATA |= {"caption": ("shapes:count=40", "transformer")}
USE = {"language": ["generate", "RUN", "a", "--tokens", "2"], "translate": ["predict", "RUN", "a b"]}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def entries(tree, at=()):
    yield at
    for name, value in tree.items() if isinstance(tree, dict) else ():
        yield from entries(value, (*at, name))


def changed(saved, path, value):
    if not path:
        return {} if value is MISSING else value
    saved = copy.deepcopy(saved)
    *above, last = path
    part = saved
    for name in above:
        part = part[name]
    if value is MISSING:
        del part[last]
    else:
        part[last] = value
    return saved


def trained(task, folder):
    data, model = DATA[task]
    rc.train(data, task=task, model=model, budget="1steps", out=folder, batch_size=2, width=8)
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def refused_or_used(words, folder, config):
    """Run a command on an edited run: 0, or 2 with the file's name; what is raised here was a traceback."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    command = [str(folder) if word == "RUN" else word for word in words]
    try:
        ask(*command)
    except AssertionError:
        said = ask(*command, code=2).stderr
        assert said.startswith("recollect: ")
        # the file, the setting as it is typed, or the data that the edited model cannot read
        names = (str(folder), "--device", "--batch", DATA["language"][0])
        assert any(name in said for name in names), said


def test_any_entry_of_a_language_run(tmp_path):
    saved = trained("language", tmp_path / "run")
    draw = random.Random(0)
    for path in entries(saved):
        for value in draw.sample(VALUES, 3):
            refused_or_used(USE["language"], tmp_path / "run", changed(saved, path, value))


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_any_entry_of_any_run_with_any_value(task, tmp_path):
    folder = tmp_path / "run"
    saved = trained(task, folder)
    shutil.copytree(folder, tmp_path / "kept")
    for path in entries(saved):
        for value in VALUES:
            config = changed(saved, path, value)
            for words in (USE.get(task, []), ["evaluate", "RUN"]):
                if words:
                    refused_or_used(words, folder, config)
            if ".".join(path) not in LONGER:
                refused_or_used(["resume", "RUN"], folder, config)
                shutil.rmtree(folder)
                shutil.copytree(tmp_path / "kept", folder)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("version", 99, "a run of version 99, this version reads 3; train it again"),
        ("run", None, "run: got null, expected an object; undo the change, or train a new run"),
        ("run.family", MISSING, "run.family: got nothing, expected a string"),
        ("run.family", "lsmt", "did you mean lstm?"),
        ("run.size", "big", "size: got 'big', expected one of tiny"),
        ("run.task", "languag", "did you mean language?"),
        ("run.training.evaluate_every", 0, "evaluate_every: got 0, expected a whole number, at least 1"),
        ("run.settings", {"widht": 3}, "widht: no such setting of the task language"),
        ("model.width", "wide", 'model.width: got "wide", expected a whole number, at least 1'),
        ("model.width", 16, "its model does not fit (body.layers.0.table.weight has the shape"),
        ("model.width", 10**12, "its model does not fit"),
        ("model.layers", 10**7, "model.layers: got 10000000, expected a whole number, at least 1, at most 1000"),
        ("model.vocab_size", MISSING, "model.vocab_size: got nothing, expected a value"),
        ("model.family", "gru", "model.family: got 'gru', but run.family is 'lstm'"),
        ("model.colour", 3, "model.colour: no such setting of the task language"),
        ("dataset", 7, "dataset: got 7, expected a string"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(path, value, words, run_and_config):
    folder, saved = run_and_config
    (folder / "config.json").write_text(json.dumps(changed(saved, path.split("."), value)), encoding="utf-8")
    with pytest.raises(FileError, match=re.escape(words)) as caught:
        rc.load(folder).load_model()
    assert str(caught.value).startswith(f"{folder}/config.json: ")


@pytest.fixture(scope="module")
def run_and_config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edited") / "run"
    return folder, trained("language", folder)


@pytest.mark.parametrize(("name", "value"), [("height", 31), ("breadth", 64), ("channels", 1)])
def test_the_size_of_the_pictures_is_named_with_its_file(name, value, tmp_path):
    folder = tmp_path / "run"
    saved = trained("caption", folder)
    (folder / "config.json").write_text(json.dumps(changed(saved, ["model", name], value)), encoding="utf-8")
    refused = ask("predict", str(folder), "shapes#0", code=2).stderr
    expected = (
        f"config.json: model.{name}: got {value}, but the run's data have {saved['model'][name]}; undo the change"
    )
    assert expected in refused


@pytest.mark.parametrize("task", ["caption", "translate"])
def test_a_fine_tuning_of_what_begins_from_nothing_is_named_with_its_file(task, tmp_path):
    folder = tmp_path / "run"
    saved = trained(task, folder)
    path = ["run", "transfer"]
    (folder / "config.json").write_text(json.dumps(changed(saved, path, {"frozen": True})), encoding="utf-8")
    assert "run.transfer: expected null: its model does not begin" in ask("resume", str(folder), code=2).stderr


def test_a_log_that_was_edited_is_named(tmp_path):
    folder = tmp_path / "run"
    trained("language", folder)
    (folder / "metrics.jsonl").write_text('{"mine": 1}\n', encoding="utf-8")
    with pytest.raises(
        FileError, match=r"metrics.jsonl, line \d+: damaged, it is no row of this run; delete that line"
    ):
        rc.load(folder).metrics()
    assert "metrics.jsonl, line 1: damaged" in ask("resume", str(folder), code=2).stderr
