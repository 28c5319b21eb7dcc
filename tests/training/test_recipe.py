"""Recipes: what a run is made from, and that every setting reaches what it sets."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from recollect.runs.config import Recipe
from recollect.runs.run import Run
from recollect.runs.train import begin, enrol
from recollect.tasks.language import LanguageTask
from recollect.training.state import Budget
from recollect.training.truncation import Truncation


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def test_budgets_come_from_what_was_set():
    assert Recipe("x").budget(100) == Budget(seconds=60.0)
    assert Recipe("x", max_epochs=2.5).budget(100) == Budget(tokens=250)
    assert Recipe("x", max_epochs=2, max_tokens=150).budget(100) == Budget(tokens=150)
    assert Recipe("x", max_steps=7, max_seconds=3.0).budget(100) == Budget(steps=7, seconds=3.0)


def test_settings_reach_the_plan():
    words = ["optimiser=sgd", "rate=0.5", "schedule=step", "stages=13", "first_stages=4", "decay=0.25", "warmup=0"]
    words += ["clip_norm=null", "clip_value=2.5", "truncation=reweighted", "every=4", "accumulate=3", "patience=5"]
    words += ["precision=bf16", "capture=false", "evaluate_every=9", "steps=32", "max_steps=10"]
    plan = Recipe("x").with_settings(words).plan(100)
    assert (plan.optimise.optimiser, plan.optimise.rate_at(0.9)) == ("sgd", 0.5 * 0.25**8)
    assert (plan.optimise.clip_norm, plan.optimise.clip_value) == (None, 2.5)
    assert plan.truncation == Truncation("reweighted", 32, 4)
    assert (plan.accumulate, plan.patience, plan.precision, plan.capture, plan.evaluate_every) == (
        3,
        5,
        "bf16",
        False,
        9,
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("raet=1", r"got 'raet'.*did you mean rate"),
        ("rate=fast", "rate: got 'fast', expected float"),
        ("tied=1", "tied: got '1', expected bool"),
        ("steps=true", "steps: got 'true', expected int"),
        ("clip_norm=high", r"clip_norm: got 'high', expected float \\| null"),
        ("schedule=step by step", "schedule: got 'step by step'"),
        ("precision=bf61", r"precision: got 'bf61'.*did you mean bf16"),
        ("truncation=regulr", "truncation: got 'regulr'"),
        ("optimiser=adam", r"optimiser: got 'adam'.*did you mean adamw"),
    ],
)
def test_bad_settings_are_refused(word, message):
    with pytest.raises(ValueError, match=message):
        Recipe("x").with_settings([word]).plan(100)


def test_tied_weights_are_counted_once():
    free, tied = (Recipe("recall", "lstm", tied=tied).language_model(5000) for tied in (False, True))
    assert tied.tied
    assert tied.width > free.width  # the same number of parameters


def test_given_files_are_held_out(tmp_path):
    parts = {name: tmp_path / f"{name}.txt" for name in ("train", "valid", "test")}
    for i, path in enumerate(parts.values()):
        path.write_text("abc"[i] * 10 + "abc" * 40, encoding="utf-8")
    data, valid, test = (str(path) for path in parts.values())
    corpus = LanguageTask().open(Recipe(data, valid=valid, test=test))
    assert [corpus.tokenizer.decode(part[:10]) for part in (corpus.train, corpus.valid, corpus.test)] == [
        "a" * 10,
        "b" * 10,
        "c" * 10,
    ]


def test_a_compiled_run_learns_the_same(tmp_path, monkeypatch):
    # Without a compiler's code, which takes minutes to build: the wiring, and that the graph is one.
    plain = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", plain)
    losses = []
    for is_compiled in (False, True):
        recipe = Recipe(
            "recall:count=2000", "gru", max_steps=6, batch_size=8, steps=16, evaluate_every=3, compile=is_compiled
        )
        rows = []
        begin(recipe, Run(tmp_path / str(is_compiled)), rows.append)
        losses.append([row["valid_loss"] for row in rows if "valid_loss" in row])
        assert (
            enrol(recipe, Run(tmp_path / str(is_compiled)).build(), LanguageTask().open(recipe)).compiled is None
        ) != is_compiled
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
