"""Figures by items: together they are the figure of the whole part, in every task and however a text is read."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch

import recollect as rc
from recollect.core.task import ItemScores
from recollect.runs.config import RunConfig
from recollect.tasks.register import guess_task

CASES = [
    ("recall:count=300", "gru", {}),
    ("recall:count=300", "transformer", {}),
    ("recall:count=300", "markov", {}),
    ("dates:count=200", "luong", {}),
    ("kindness:count=300", "bilstm", {}),
    ("apple", "bilstm", {}),
    ("seasons", "gru", {"horizon": 4}),
    ("seasons", "gru", {"horizon": 4, "output": "gaussian"}),
    ("tastes", "factors", {}),
    ("shapes:count=200", "show-attend-tell", {}),
]


@pytest.mark.parametrize(("data", "family", "settings"), CASES, ids=lambda case: str(case))
def test_items_together_are_the_measure_of_the_part(data, family, settings):
    config = RunConfig.make(data, family, task=guess_task(data), **settings)
    task = config.make_task()
    dataset = task.open(data)
    torch.manual_seed(0)
    model = task.build(asdict(task.config(family, "tiny", dataset, config.settings)))
    if not list(model.parameters()):
        task.fit(model, dataset)
    items = task.item_scores(model, dataset, "test")
    assert items.value == pytest.approx(task.measure(model, dataset, "test").value, rel=1e-6)
    assert len(items.numerators) == len(items.denominators) > 5
    assert items.grouped(5).value == pytest.approx(items.value)
    assert len(items.grouped(5).numerators) <= 5


def test_a_text_without_ends_has_blocks_and_positions(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 200, encoding="utf-8")
    for family in ("lstm", "transformer"):
        run = rc.train(tmp_path / "text.txt", model=family, budget="1steps", out=tmp_path / family, steps=32)
        items = run.task.item_scores(run.model, run.dataset(), "test")
        assert items.value == pytest.approx(run.task.measure(run.model, run.dataset(), "test").value)
        assert len(items.by_position) == 32


def test_spans_count_by_sequence(tmp_path):
    rows = "\n\n".join(
        "\n".join(f"{word}\t{tag}" for word, tag in (("Ann", "B-P"), ("Lee", "I-P"), ("sat", "O"))) for _ in range(40)
    )
    (tmp_path / "names.conll").write_text(rows + "\n", encoding="utf-8")
    run = rc.train(tmp_path / "names.conll", task="tag", model="rnn", budget="3steps", out=tmp_path / "run")
    items = run.task.item_scores(run.model, run.dataset(), "test")
    scores = run.task.measure(run.model, run.dataset(), "test")
    assert scores.decisive == "span_f1"
    assert items.value == pytest.approx(scores.value)


def test_no_items_have_no_value():
    assert math.isnan(ItemScores([], []).value)
    assert ItemScores([], []).grouped(10).numerators == []
    assert ItemScores([4.0, 16.0], [1.0, 1.0], power=0.5).value == pytest.approx(math.sqrt(10))
