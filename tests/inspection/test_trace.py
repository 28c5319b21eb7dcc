"""The trace as data: names, axes, checks and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import recollect as rc
from recollect.inspection.names import AXES, NAMES, known, table

DECISION = Path(__file__).resolve().parents[2] / "docs/decisions/0026-trace.md"


def test_the_decision_lists_every_name() -> None:
    rows = [line for line in DECISION.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert rows == table()


def test_names_have_declared_axes() -> None:
    assert {axis for one in NAMES.values() for axis in one.axes} == set(AXES)
    assert known("encoder.layers.12.weights") is NAMES["layers.#.weights"]
    assert known("layers.x.weights") is None


def test_json_has_the_arrays_with_four_digits() -> None:
    loss = np.array([np.nan, 1.23456, -np.inf, 12345.6])
    trace = rc.Trace.of(list("abcd"), {"loss": loss, "ids": [0, 1, 2, 3], "next.texts": [["a"], ["b"], ["c"], ["<"]]})
    arrays = json.loads(json.dumps(trace.as_json(), allow_nan=False))["arrays"]
    assert arrays["loss"] == {"axes": ["token"], "shape": [4], "values": [None, 1.235, None, 12350.0]}
    assert arrays["ids"]["values"] == [0, 1, 2, 3]
    assert arrays["next.texts"]["values"] == [["a"], ["b"], ["c"], ["<"]]


def test_units_that_vary_most_are_shown() -> None:
    hidden = np.zeros((3, 5))
    hidden[:, 4], hidden[:, 1] = [1, 2, 3], [0, 9, 0]
    gate = np.arange(15.0).reshape(3, 5)
    layers = [{"name": "layers.0", "kind": "GRU"}]
    trace = rc.Trace.of("abc", {"layers.0.hidden": hidden, "layers.0.update_gate": gate}, layers=layers)
    shown = trace.as_json(units=2)
    assert shown["layers"][0]["shown_units"] == [1, 4]
    assert shown["arrays"]["layers.0.update_gate"]["values"] == gate[:, [1, 4]].tolist()
    assert "shown_units" not in trace.as_json(units=5)["layers"][0]


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"loss: got 3 along token, expected 2"):
        rc.Trace.of(["a", "b"], {"loss": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"layers.0.weights: got shape \(2,\), expected 3 axes: head, token, attended"):
        rc.Trace.of(["a", "b"], {"layers.0.weights": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"mine: not a name of a trace, expected its axes"):
        rc.Trace.of(["a", "b"], {"mine": [1.0, 2.0]})
    own = rc.Trace.of(["a", "b"], {"mine": [1.0, 2.0]}, axes={"mine": ["token"]})
    assert own.axes("mine") == ("token",)
    with pytest.raises(KeyError, match="not in this trace; it has: mine"):
        own["loss"]
