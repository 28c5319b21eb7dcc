"""What a run is made from: every setting reaches what it sets, or is refused."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, fields

import numpy as np
import pytest
import torch

import recollect as rc
from command_line import ask
from generated_data import GENERATED
from recollect.core.meta import on_meta
from recollect.core.settings import parse
from recollect.models import captioning, language, translation
from recollect.models.sizes import sized
from recollect.runs.budget import parse_budget
from recollect.runs.config import RunConfig, list_settings
from recollect.runs.run import Run
from recollect.runs.train import begin, start
from recollect.tasks.register import HOMES, task_named
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget
from recollect.training.truncation import Truncation


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def test_budgets_come_from_what_was_set():
    def budget(**limits) -> TrainingBudget:
        return RunConfig.make("x", **limits).training.budget(100)

    assert budget() == TrainingBudget(seconds=60.0)
    assert budget(max_epochs=2.5) == TrainingBudget(tokens=250)
    assert budget(max_epochs=2, max_tokens=150) == TrainingBudget(tokens=150)
    assert budget(max_steps=7, max_seconds=3.0) == TrainingBudget(steps=7, seconds=3.0)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("30s", {"max_seconds": 30}),
        ("60", {"max_seconds": 60}),
        ("5m", {"max_seconds": 300}),
        ("5min", {"max_seconds": 300}),
        ("1.5h", {"max_seconds": 5400}),
        ("2000steps", {"max_steps": 2000}),
        ("1e6tokens", {"max_tokens": 1_000_000}),
        ("1e6 tok", {"max_tokens": 1_000_000}),
        ("0.5epochs", {"max_epochs": 0.5}),
    ],
)
def test_budgets_are_read_as_people_write_them(text, limits):
    assert parse_budget(text) == limits


@pytest.mark.parametrize("text", ["0s", "1e400steps", "0", "0steps", "0.0epochs", "soon", "-5s", "5 parsecs", "nan"])
def test_a_budget_of_nothing_is_refused(text):
    with pytest.raises(ValueError, match=f"--budget: got '{text}', expected 30s"):
        parse_budget(text)


@pytest.mark.parametrize(
    "word",
    [
        *("--batch 0", "--steps 0", "--seed -1", "--budget 0s", "--budget 0steps", "--budget 0tokens", "--size huge"),
        *("accumulate=0", "clip_norm=0", "clip_norm=-1", "rate=0", "rate=nan", "warmup=5", "patience=0", "dropout=1.5"),
        *("evaluate_every=0", "evaluate_every=-5", "vocab_size=3", "width=0", "layers=0", "max_steps=0", "seed=1e30"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "plan"])
def test_a_setting_out_of_range_is_refused_by_its_name_before_anything_starts(verb, word, tmp_path):
    flag = word.split() if word.startswith("--") else ["--set", word]
    out = ["--out", str(tmp_path / "run")] if verb == "train" else []
    said = ask(verb, str(tmp_path / "nowhere.txt"), *flag, *out, code=2).stderr
    name = flag[0].lstrip("-") if word.startswith("--") else word.split("=")[0]
    assert said.startswith((f"recollect: {name}: ", f"recollect: --{name}: ")), said  # not that there is no such file
    assert not (tmp_path / "run").exists()


def configured(words: list[str], model: str = "lstm", **given) -> RunConfig:
    return RunConfig.make("x", model, **given, **dict(parse(word) for word in words))


def test_settings_reach_the_plan():
    words = ["optimiser=sgd", "rate=0.5", "schedule=step", "stages=13", "first_stages=4", "decay=0.25", "warmup=0"]
    words += ["clip_norm=null", "clip_value=2.5", "truncation=reweighted", "every=4", "accumulate=3", "patience=5"]
    words += ["precision=bf16", "capture=false", "evaluate_every=9", "steps=32", "max_steps=10"]
    config = configured(words)
    plan = config.training.plan(100)
    assert (plan.optimizer.optimiser, plan.optimizer.rate_at(0.9)) == ("sgd", 0.5 * 0.25**8)
    assert (plan.optimizer.clip_norm, plan.optimizer.clip_value) == (None, 2.5)
    assert config.make_task().loss.truncation == Truncation("reweighted", 32, 4)
    found = (plan.accumulate, plan.patience, plan.precision, plan.capture, plan.evaluate_every)
    assert found == (3, 5, "bf16", False, 9)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("raet=1", r"raet: no such setting.*did you mean rate"),
        ("rate=fast", 'rate: got "fast", expected a number'),
        ("rate=0", "rate: got 0, expected a number, more than 0"),
        ("tied=1", "tied: got 1, expected true or false"),
        ("steps=true", "steps: got true, expected a whole number"),
        ("clip_norm=high", 'clip_norm: got "high", expected a number or null'),
        ("schedule=step by step", 'schedule: got "step by step"'),
        ("precision=bf61", r'precision: got "bf61".*did you mean bf16'),
        ("truncation=regulr", r'truncation: got "regulr".*did you mean regular'),
        ("optimiser=adam", r'optimiser: got "adam".*did you mean adamw'),
        ("heads=2", "heads: lstm does not use it; in the task language these do: .*transformer"),
        ("lowercase=true", "lowercase: no such setting of the task language with the model lstm"),
        ("joint=true", "joint: no such setting of the task language"),
        ("rate", "--set: got 'rate', expected NAME=VALUE"),
    ],
)
def test_bad_settings_are_refused(word, message):
    with pytest.raises(ValueError, match=message):
        configured([word])


@pytest.mark.parametrize(
    ("task", "model", "word"),
    [
        ("language", "markov", "order=2"),
        ("language", "window", "order=2"),
        ("translate", "luong", "alignment=hard"),
        ("translate", "static", "context=mean"),
        ("translate", "bahdanau", "score=general"),
        ("translate", "cho", "cell=lstm"),
        ("translate", "transformer", "norm=pre"),
        ("caption", "show-attend-tell", "alignment=hard"),
    ],
)
def test_every_model_setting_reaches_the_model(task, model, word, tmp_path):
    name, value = parse(word)
    run = rc.train(DATA[task], task=task, model=model, budget="1steps", out=tmp_path / "run", **{name: value})
    assert getattr(run.model.config, name) == value
    assert f'"{name}": {json.dumps(value)}' in (tmp_path / "run" / "config.json").read_text(encoding="utf-8")


DATA = {"language": "recall:count=2000", "translate": "reversed:count=60", "caption": "shapes:count=40"}
LAYERED = {"language": language.LEARNED, "translate": translation.FAMILIES, "caption": captioning.FAMILIES}


@pytest.mark.parametrize(("task", "model"), [(task, model) for task, models in LAYERED.items() for model in models])
def test_layers_and_width_are_set_for_every_family(task, model, tmp_path):
    runs = [
        rc.train(DATA[task], task=task, model=model, budget="1steps", out=tmp_path / str(n), layers=n, width=16)
        for n in (1, 2)
    ]
    assert [(run.model.config.layers, run.model.config.width) for run in runs] == [(1, 16), (2, 16)]
    shallow, deep = (len(list(run.model.modules())) for run in runs)
    assert deep > shallow


SOURCES = DATA | GENERATED | {"summarise": "dates:count=80"}
EVERY = [(task, family) for task in HOMES for family in task_named(task).families]
opened = functools.cache(lambda task: task_named(task)().open(SOURCES[task]))


@pytest.mark.parametrize(("task", "family"), EVERY)
def test_layers_and_width_reach_the_model_of_every_family_that_has_them(task, family):
    used = {row["name"] for row in list_settings(task, family)}
    given = {name: value for name, value in {"layers": 2, "width": 16}.items() if name in used}
    for name in {"layers", "width"} - used:
        with pytest.raises(ValueError, match=f"^{name}: "):
            RunConfig.make("x", family, task=task, **{name: 2})
    own = task_named(task)()
    deep, shallow = (
        own.config(family, "tiny", opened(task), given | more)
        for more in ({}, {"layers": 1} if "layers" in used else {})
    )
    assert {name: getattr(deep, name) for name in given} == given
    if "layers" in used:
        with on_meta():
            more, fewer = (len(list(own.build(asdict(one)).modules())) for one in (deep, shallow))
        assert more > fewer


def test_a_model_without_layers_says_who_has_them():
    with pytest.raises(ValueError, match="layers: markov does not use it; in the task language these do: window, rnn"):
        RunConfig.make("x", "markov", layers=2)


@pytest.mark.parametrize(("model", "layers"), [("gru", 2), ("window", 1)])
def test_runs_that_called_layers_depth_are_read(model, layers, tmp_path):
    run = rc.train("recall:count=2000", model=model, budget="1steps", out=tmp_path / "run", layers=layers, width=8)
    path = tmp_path / "run" / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    for settings in (saved["model"], saved["run"]["settings"]):
        del settings["layers"]
        settings["depth"] = 2
    path.write_text(json.dumps(saved), encoding="utf-8")
    again = rc.load(tmp_path / "run")
    assert again.model.config == run.model.config
    assert again.config() == run.config()


def test_a_hard_alignment_is_trained_hard(tmp_path):
    run = rc.train("reversed:count=60", model="luong", budget="1steps", out=tmp_path / "run", alignment="hard")
    assert type(run.model.decoder.attend.alignment).__name__ == "Hard"


def test_every_setting_of_every_config_is_known_or_derived():
    derived = {"family", "vocab_size", "source_vocab", "target_vocab", "shared", "frames"}
    derived |= {"height", "breadth", "channels", "body"}
    for module in (language, translation, captioning):
        config = next(kind for name, kind in vars(module).items() if name.endswith("Config"))
        assert {f.name for f in fields(config)} - derived == set(module.USED_BY)
        assert all(set(families) <= set(module.FAMILIES) for families in module.USED_BY.values())


def test_tied_weights_are_counted_once():
    free, tied = (sized("lstm", 5000, tied=tied, parameters=500_000) for tied in (False, True))
    assert tied.tied
    assert tied.width > free.width  # the same number of all parameters
    assert sized("lstm", 5000, tied=True).width == sized("lstm", 5000).width  # and of those in the body


def test_parameter_groups_keep_their_own_rates():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    how = Optimizer(rate=0.1, schedule="constant", warmup=0.5)
    optimizer = how.build(model, {"0.weight": (0.1, 0.0), "0.bias": (0.1, 0.0)})
    how.set_rates(optimizer, how.rate_at(0.25))
    assert sorted({round(group["lr"], 9) for group in optimizer.param_groups}) == [0.005, 0.05]


def test_given_files_are_held_out(tmp_path):
    parts = {name: tmp_path / f"{name}.txt" for name in ("train", "valid", "test")}
    for i, path in enumerate(parts.values()):
        path.write_text("abc"[i] * 10 + "abc" * 40, encoding="utf-8")
    data, valid, test = (str(path) for path in parts.values())
    corpus = RunConfig.make(data, valid=valid, test=test).make_task().open(data)
    assert [corpus.tokenizer.decode(part[:10]) for part in (corpus.train, corpus.valid, corpus.test)] == [
        "a" * 10,
        "b" * 10,
        "c" * 10,
    ]


@pytest.mark.slow
def test_a_compiled_run_learns_the_same(tmp_path, monkeypatch):
    # Without a compiler's code, which takes minutes to build: the wiring, and that the graph is one.
    plain = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", plain)
    losses = []
    for is_compiled in (False, True):
        given = {"max_steps": 6, "batch_size": 8, "steps": 16, "evaluate_every": 3, "compile": is_compiled}
        config, run, rows = RunConfig.make("recall:count=2000", "gru", **given), Run(tmp_path / str(is_compiled)), []
        begin(config, run, rows.append)
        losses.append([row["valid_loss"] for row in rows if "valid_loss" in row])
        assert (start(config, run.task, run.build(), run.dataset()).compiled is None) != is_compiled
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.parametrize(("task", "model"), [(task, None) for task in HOMES] + [("language", "markov")])
def test_every_setting_that_is_listed_can_be_set_to_its_default(task, model):
    rows = list_settings(task, model)
    given = {row["name"]: row["default"] for row in rows}
    config = RunConfig.make("x", model, task=task, **given)
    assert asdict(config.training) | asdict(config.options) | dict(config.settings) == given
    assert all(row["range"] for row in rows)
    if task == "language":
        assert ("order" in given) == (model == "markov")


def test_the_command_lists_them():
    shown = json.loads(ask("settings", "--task", "translate", "-m", "luong", "--json").stdout)
    alignment = next(row for row in shown if row["name"] == "alignment")
    assert alignment["range"] == "one of soft, hard, local-monotonic, local-predictive"
    assert "evaluate_every" in ask("settings").stdout
    assert "did you mean luong" in ask("settings", "--task", "translate", "-m", "loung", code=2).stderr


def test_what_has_a_flag_may_also_be_set_once(tmp_path):
    words = ["train", "recall:count=2000", "--out", str(tmp_path / "run"), "--set", "max_seconds=9", "--set", "seed=3"]
    ask(*words, "--set", "device=cpu", "--set", "max_steps=1")
    training = rc.load(tmp_path / "run").config().training
    assert (training.max_seconds, training.max_steps, training.seed, training.device) == (9, 1, 3, "cpu")
    assert "--set out: it is no setting" in ask("train", "recall", "--set", "out=x", code=2).stderr
    assert "--set data: it is no setting" in ask("plan", "recall", "--set", "data=x", code=2).stderr
