"""Random windows or carried streams: every family can be trained on windows, those of bounded memory on both."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from command_line import ask
from recollect.data.text.batches import Streams, Windows
from recollect.evaluation.likelihood import score_carried, score_windows
from recollect.models.language import LEARNED
from recollect.tasks.language import LanguageOptions, LanguageTask

SMALL = {"batch_size": 2, "steps": 8}
DATA = "recall:count=60"


@pytest.mark.parametrize("family", LEARNED)
def test_every_family_trains_and_validates_on_windows(family):
    task = LanguageTask(LanguageOptions(sampling="windows", **SMALL))
    data = task.open(DATA)
    model = task.build(vars(task.config(family, "tiny", data, {"width": 8})))
    batches = task.batches(data, model, seed=0)
    assert isinstance(batches, Windows)
    batch = next(iter(batches))
    assert task.loss(model, batch, None).memory is None
    assert batch.valid is not None or task.loss.traceable(model, batch) is not None  # no row is reset
    ids, ends = data.valid, data.ends["valid"]
    expected = score_windows(model, ids, 8, ends=ends).loss
    assert task.measure(model, data, "valid").rows == {"cold windows": {"loss": expected}}
    assert task.item_scores(model, data, "valid").value == pytest.approx(expected, rel=1e-5)
    assert (
        task.evaluate(model, data, task.assets(data)).value
        == score_windows(model, data.test, 8, ends=data.ends["test"]).loss
    )


@pytest.mark.parametrize("family", LEARNED)
def test_a_bounded_memory_is_carried_through_streams(family):
    task = LanguageTask(LanguageOptions(sampling="streams", **SMALL))
    data = task.open(DATA)
    settings = {"width": 8, "window": 4} if family == "transformer" else {"width": 8}
    model = task.build(vars(task.config(family, "tiny", data, settings)))
    batches = task.batches(data, model, seed=0)
    assert isinstance(batches, Streams)
    assert task.loss(model, next(iter(batches)), None).memory is not None
    expected = score_carried(model, data.valid, 8, ends=data.ends["valid"]).loss
    assert task.measure(model, data, "valid").rows == {"carried": {"loss": expected}}


def test_an_lstm_trained_on_windows_is_evaluated_in_windows_first(tmp_path):
    folder = str(tmp_path / "run")
    ask("train", DATA, "-m", "lstm", "--budget", "3steps", "--set", "sampling=windows", "--width", "8", "--out", folder)
    run = rc.load(folder)
    assert list(run.evaluate().rows) == ["cold windows", "carried"]
    with torch.no_grad():
        again = run.task.measure(run.model, run.dataset(), "valid")
    assert next(iter(again.rows)) == "cold windows"


@pytest.mark.parametrize(
    ("model", "words", "error"),
    [
        ("transformer", ["sampling=streams"], "the memory of transformer grows with all that was read; set a window"),
        ("lstm", ["sampling=windows", "truncation=random"], "truncation: got random, but sampling=windows carries no"),
    ],
)
def test_what_cannot_be_sampled_so_is_refused(model, words, error, tmp_path):
    given = [part for word in words for part in ("--set", word)]
    said = ask("train", DATA, "-m", model, *given, "--out", str(tmp_path / "run"), code=2).stderr
    assert error in said
    assert not (tmp_path / "run" / "config.json").exists()
