"""The load on a server: what its verdict demands, and which streams count as evidence."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import recollect as rc

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
serving_load = importlib.import_module("serving_load")
streams = importlib.import_module("streams")

ROW = {
    "errors": 0,
    "wrong": 0,
    "equal": 9,
    "times_symbols_per_s": 5.01,
    "resident_mib": {"before": 1000.0, "after": 1090.0},
    "batch_bytes_afterwards": 0.0,
    "overload": {"holds": True},
}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, None),
        ({"errors": 1}, "no error"),
        ({"wrong": 1}, "streams"),
        ({"equal": 0}, "streams"),
        ({"times_symbols_per_s": 4.99}, "times"),
        ({"batch_bytes_afterwards": 4.0}, "memory"),
        ({"resident_mib": {"before": 1000.0, "after": 1110.0}}, "memory"),
        ({"resident_mib": {"before": 100.0, "after": 170.0}}, "memory"),
        ({"overload": {"holds": False}}, "overload"),
    ],
)
def test_each_condition_decides(changes, broken):
    found = serving_load.conditions(ROW | changes)
    assert [name for name, holds in found.items() if not holds] == ([] if broken is None else [broken])


def answer(ask, text: str, *, is_whole: bool = False):
    part = {"choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": None}]}
    data = b"HTTP/1.1 200 OK\r\n\r\ndata: " + json.dumps(part).encode() + b"\n\n" if text else b""
    return streams.Answer(ask, 0.0, [(0.0, data)] if data else [], is_whole)


def test_a_stream_without_a_text_is_no_evidence(tmp_path):
    run = rc.train("recall:count=200", model="gru", out=tmp_path / "run", budget="2steps", width=8, layers=1)
    ask = streams.Ask(run.prompt(), 20, 3)
    text = run.generate(ask.prompt, tokens=20, temperature=0.8, seed=3).removeprefix(ask.prompt)
    other = ("b" if text[0] == "a" else "a") + text[1:]
    answers = [
        answer(ask, ""),
        answer(ask, text[:7]),
        answer(ask, text, is_whole=True),
        answer(ask, "", is_whole=True),
        answer(ask, other, is_whole=True),
    ]
    assert serving_load.compared(run, answers) == {"streams": 4, "empty": 1, "equal": 2, "rounded": 0, "wrong": 2}
