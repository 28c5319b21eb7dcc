"""Requests that schemathesis derives from the server's own description: no answer is a fault of the server."""

from __future__ import annotations

import math
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

import recollect as rc
from serving.served import KEY, Serving, serving

MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
TEXT = "the cat sat"
SOME, PREDICT = "/v1/completions", "/v1/predict"
TABLE = "value\n" + "".join(f"{math.sin(i / 4):.4f}\n" for i in range(100))
LABELS = {"model": "labels", "input": ["not good", "good"], "nbest": 1}
FORECAST = {"model": "forecasts", "files": [{"name": "a.csv", "content": b64encode(TABLE.encode()).decode()}]}


@pytest.fixture(scope="module")
def predicting(tmp_path_factory) -> list[Path]:
    """Return a run that labels texts, and one that reads files."""
    base, small = tmp_path_factory.mktemp("predicting"), {"budget": "2steps", "width": 8, "device": "cpu"}
    series = {"task": "forecast", "model": "gru", "lookback": 16, "horizon": 4}
    labels = rc.train("kindness:count=60", model="gru", out=base / "labels", **small)
    forecasts = rc.train("sine:length=400", out=base / "forecasts", **series, **small)
    return [labels.folder, forecasts.folder]


def statuses(server: Serving, routes: str, count: int, change: Callable[[Case], None]) -> dict[str, Counter[int]]:
    """Send `count` valid and as many invalid requests to each route that begins so; return the answers' statuses."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
    found: dict[str, Counter[int]] = {}
    for operation in (result.ok() for result in schema.get_all_operations()):
        if not operation.path.startswith(routes):
            continue
        seen = found.setdefault(f"{operation.method.upper()} {operation.path}", Counter())
        for mode in MODES:
            with suppress(Unsatisfiable):  # a route without parameters has no invalid request
                _send(operation.as_strategy(generation_mode=mode), count, change, seen)
    return found


def _send(cases: Any, count: int, change: Any, seen: Counter[int]) -> None:
    how = {"max_examples": count, "deadline": None, "database": None, "derandomize": True}

    @settings(**how, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def send(case: Case) -> None:
        change(case)
        answer = case.call(timeout=60)
        seen[answer.status_code] += 1
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)

    send()


@pytest.mark.parametrize(("routes", "count"), [(SOME, 8), (PREDICT, 6), pytest.param("/", 15, marks=pytest.mark.slow)])
def test_no_request_is_a_fault_of_the_server(runs, predicting, tmp_path, routes, count):
    predicted = cycle([LABELS, FORECAST])
    with serving([runs / "rnn", *predicting], sessions=tmp_path) as server:
        numbers = iter(range(10**6))

        def change(case: Case) -> None:
            """Name a model and a session that there are, in two of three, and ask for few symbols."""
            is_real = next(numbers) % 3 > 0
            body = case.body if isinstance(case.body, dict) else {}
            if isinstance(body.get("max_tokens"), (int, float)):
                body["max_tokens"] = min(body["max_tokens"], 5)  # what takes too long is 504
            if is_real and "model" in body:
                body["model"] = "rnn"
            if is_real and case.operation.path == PREDICT and "model" in body:
                case.body = next(predicted)
            if is_real and isinstance(body.get("text"), str):
                body["text"] = TEXT  # of its vocabulary
            if is_real and case.operation.path == SOME and "model" in body:
                for name in (
                    "session",
                    "suffix",
                    "best_of",
                    "logit_bias",
                    "frequency_penalty",
                    "presence_penalty",
                    "echo",
                ):
                    body.pop(name, None)
                body["prompt"] = TEXT
            if is_real and "name" in case.path_parameters:
                begun = server.post("/v1/sessions", {"model": "rnn", "text": TEXT}, 201)
                case.path_parameters["name"] = "rnn" if "models" in case.operation.path else begun["id"]

        found = statuses(server, routes, count, change)
        assert server.post("/v1/completions", {"model": "rnn", "prompt": TEXT})["choices"]
    assert len(found) == 1 if routes != "/" else len(found) >= 13
    for route in (SOME, PREDICT) if routes == "/" else (routes,):
        assert 400 in found[f"POST {route}"]
        assert found[f"POST {route}"][200] >= count // 8  # some got through
    assert routes != "/" or all({200, 201, 409} & set(seen) for route, seen in found.items())


@pytest.mark.parametrize(("routes", "count"), [(SOME, 3), pytest.param("/", 8, marks=pytest.mark.slow)])
def test_without_the_right_key_no_request_gets_in(runs, routes, count):
    def change(case: Case) -> None:
        case.headers["Authorization"] = f"Bearer {KEY[:-1]}"

    with serving([runs / "rnn"], keys=[KEY]) as server:
        found = statuses(server, routes, count, change)
    assert set().union(*found.values()) <= {400, 401}  # 400: of uvicorn, for what is no HTTP
    assert all(seen[401] for seen in found.values())
