"""Every family of every task is traced, and its arrays fit their names; what decided is found in each task."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from every_model import DATA, families, open_model

import recollect as rc
from recollect.inspection.opened import Opened
from recollect.models.line import LINE
from recollect.tasks.register import HOMES, task_named

COUNTING = {"markov", "majority"}
BAGS = {"bag-of-words", "bag-of-ngrams"}
RECURRENT = {"rnn", "gru", "lstm", "birnn", "bigru", "bilstm", "sutskever", "cho", "static", "bahdanau", "luong"}


@pytest.mark.parametrize(("task", "family"), families())
def test_every_model_of_every_task_is_traced(task: str, family: str) -> None:
    opened, inputs = open_model(task, family)
    trace = rc.inspect(opened, inputs, explain=8)
    rc.Trace.of(  # checks every array against the axes of its name
        trace.tokens, trace.arrays, source=trace.source, labels=trace.labels
    )
    json.dumps(trace.as_json(), allow_nan=False)
    assert trace["memory.bytes"].shape == (len(trace.tokens),)
    assert ("reach" in trace) == (family not in COUNTING | BAGS)
    assert ("left_out" in trace) == (task != "masked")
    assert bool(trace.layers) or family in COUNTING | BAGS | {"cnn", "biases", "factors"} or task == "forecast"
    has_gates = any("gates" in layer for layer in trace.layers)
    assert has_gates == (family in RECURRENT or family == "show-attend-tell")


def test_every_name_of_the_register_is_covered() -> None:
    assert set(DATA) == set(HOMES)
    named = {(task, station.name) for station in LINE for task in station.tasks}
    assert named <= set(families())


def test_the_word_that_decided_the_label_is_found() -> None:
    """A bag of words is a sum of votes: without a word, log p changes by what the softmax makes of its vote."""
    opened, _ = open_model("classify", "bag-of-words")
    model = opened.model
    good = int(opened.assets["tokenizer"].encode("good")[0])
    before = model.votes.weight.detach().clone()
    try:
        model.votes.weight.data[good, 0] = 3.0
        trace = rc.inspect(opened, "the film was good today")
    finally:
        model.votes.weight.data.copy_(before)
    assert trace.tokens[int(trace["left_out"][0].argmax())] == "good"
    expected = np.log(1 / (1 + np.exp(-3))) - np.log(0.5)
    np.testing.assert_allclose(trace["left_out"][0].max(), expected, rtol=1e-5)


def test_the_row_that_decided_the_forecast_is_found() -> None:
    naive, _ = open_model("forecast", "naive")
    seasonal, source = open_model("forecast", "seasonal-naive")
    last, year = rc.inspect(naive, source), rc.inspect(seasonal, source)
    assert last["reach"].argmax(1).tolist() == [23, 23, 23]
    assert year["reach"].argmax(1).tolist() == [12, 14, 17]  # a year before the first, the middle and the last step
    np.testing.assert_allclose(last["forecast"], np.broadcast_to(last["values"][-1], (6, 1)), rtol=1e-6)


def test_the_terms_of_a_rating_are_its_explanation() -> None:
    opened, _ = open_model("recommend", "factors")
    trace = rc.inspect(opened, "user-3,film-4")
    np.testing.assert_allclose(trace["saliency"].sum(), trace["outcome.logprob"][0], rtol=1e-6)
    np.testing.assert_allclose(trace["saliency"][0, 3:], trace["user.tastes"] * trace["item.features"], rtol=1e-6)
    np.testing.assert_allclose(trace["left_out"], trace["saliency"], atol=1e-6)


def test_a_target_may_be_given_and_both_sides_are_named() -> None:
    opened, _ = open_model("translate", "bahdanau")
    trace = rc.inspect(opened, ("twenty-one", "21"))
    assert trace.source == tuple("twenty-one")
    assert trace.tokens == ("⟨s⟩", "2", "1")
    assert trace.outcomes == ("2", "1", "⟨/s⟩")
    np.testing.assert_allclose(trace["alignment"].sum(1), 1, rtol=1e-5)
    run_weights = opened.task.attention(opened.model, opened.assets, "twenty-one", "21")["weights"]
    np.testing.assert_allclose(trace["alignment"], run_weights, rtol=1e-6)


def test_cells_of_a_picture_are_the_inputs_of_a_caption() -> None:
    opened, picture = open_model("caption", "show-attend-tell")
    trace = rc.inspect(opened, (picture, "a small red square"))
    rows, columns = trace.model["grid"]
    assert rows * columns == len(trace.source) == trace["alignment"].shape[1]


def test_a_class_token_is_no_token_and_its_weights_are_the_pool() -> None:
    for family in ("bert", "lstm"):
        opened, text = open_model("classify", family)
        config = vars(opened.model.config) | {"pooling": "class-token"}
        opened = type(opened)(opened.task.build(config).eval(), opened.assets, opened.task)
        trace = rc.inspect(opened, text)
        assert ("pool.weights" in trace) == (family == "bert")
        assert len(trace.layers) == 1
    config = vars(opened.model.config) | {"pooling": "attention"}
    trace = rc.inspect(type(opened)(opened.task.build(config).eval(), opened.assets, opened.task), text)
    np.testing.assert_allclose(trace["pool.weights"].sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("task_name", ["classify", "translate"])
def test_frames_of_a_recording_are_inputs(task_name: str) -> None:
    """Which frame the digit: a spoken digit is read as log-mel frames, each with its moment in seconds."""
    kind = task_named(task_name)
    task = kind(kind.Options())
    data = task.open("tones:count=60")
    torch.manual_seed(0)
    family = "gru" if task_name == "classify" else "bahdanau"
    model = task.build(vars(task.config(family, "tiny", data, {"width": 16}))).eval()
    trace = rc.inspect(Opened(model, task.assets(data), task), "tones, 3", explain=2)
    frames = trace["values"] if task_name == "classify" else trace["encoder.values"]
    assert trace["reach"].shape[1] == len(frames) == len(trace.inputs)
    assert float(trace.inputs[1]) > 0
    assert (trace["reach"] > 0).any()


def test_the_rows_beside_a_gap_decide_what_fills_it() -> None:
    opened, _ = open_model("fill", "gru")
    opened.model.body[-1].linear.weight.data.zero_()  # what is left is the simple estimate …
    opened.model.body[-1].linear.bias.data.zero_()
    if opened.model.share is not None:
        opened.model.share.data.zero_()  # … of the straight line
    values = np.sin(np.arange(20.0))[:, None]
    values[9:11] = np.nan
    trace = rc.inspect(opened, values)
    assert trace.outcomes == ("9", "10")
    line = values[8] + (values[11] - values[8]) * np.array([[1], [2]]) / 3
    np.testing.assert_allclose(trace["filled"][9:11], line, rtol=1e-5)
    assert {8, 11} <= set(np.argsort(-np.abs(trace["left_out"][0]))[:3].tolist())


def test_a_pointer_is_explained_by_the_words_of_story_and_query() -> None:
    opened, question = open_model("match", "bigru")
    trace = rc.inspect(opened, question)
    query = question.partition(" | ")[2]
    assert trace.tokens.index("|") == len(opened.assets["tokenizer"].symbols(query))
    np.testing.assert_allclose(trace["pool.weights"].sum(), 1, rtol=1e-5)
    best = opened.task.predict(opened.model, opened.assets, [question], 1)
    assert np.exp(trace["outcome.logprob"][0]) <= next(iter(best)).targets[0].score + 1e-6
    assert np.isnan(trace["left_out"][0, trace.tokens.index("|")])
