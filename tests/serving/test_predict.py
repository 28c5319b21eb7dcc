"""/v1/predict: labels, tags, translations, answers, captions, forecasts and filled gaps are those of the run."""

from __future__ import annotations

import base64
import io
import math

import pytest
from PIL import Image

import recollect as rc
from recollect.serving.other_routes import plain
from recollect.serving.state import Limits
from serving.served import serving
from tiers import slow_after

SMALL = {"budget": "2steps", "width": 8, "device": "cpu"}
TRAINED = {  # by name: data and settings
    "labels": ("kindness:count=60", {"model": "gru"}),
    "tags": ("verbs:count=60", {"model": "gru"}),
    "forecasts": ("sine:length=400", {"task": "forecast", "model": "gru", "lookback": 16, "horizon": 4}),
    "translations": ("reversed:count=60", {"model": "luong"}),
    "captions": ("shapes:count=40", {"task": "caption"}),
    "gaps": ("sine:length=400", {"task": "fill", "gap": 2, "context": 4}),
    "answers": ("stories:count=60", {"model": "gru"}),
    "masks": ("recall:count=200", {"task": "masked", "model": "bert", "layers": 1}),
}
TEXTS = {
    "labels": ["not good", "good"],
    "tags": ["the cat sees", "a dog"],
    "translations": ["a b c", "b"],
    "answers": ["Mary went to the park | where is Mary"],
    "masks": ["a [MASK] b"],
}
TABLE = "value\n" + "".join(f"{math.sin(i / 4):.4f}\n" for i in range(100))
GAP = TABLE.replace("0.9093\n", '""\n', 1)  # one value is missing


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(content, "PNG")
    return content.getvalue()


FILES = {
    "forecasts": ("hours.csv", TABLE.encode()),
    "gaps": ("hours.csv", GAP.encode()),
    "captions": ("a.png", picture()),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Return a function that trains a run of a kind, once."""
    made: dict[str, rc.Run] = {}
    base = tmp_path_factory.mktemp("predict")

    def run_of(name: str) -> rc.Run:
        if name not in made:
            data, settings = TRAINED[name]
            made[name] = rc.train(data, out=base / name, **SMALL | settings)
        return made[name]

    return run_of


def as_files(name: str, content: bytes) -> list[dict[str, str]]:
    return [{"name": name, "content": base64.b64encode(content).decode()}]


@pytest.mark.parametrize("name", slow_after(2, TEXTS))
def test_texts_are_predicted_as_the_run_does(run_of, name):
    run = run_of(name)
    expected = plain([one.as_json() for one in run.predict(TEXTS[name])])
    with serving([run.folder]) as server:
        found = server.post("/v1/predict", {"model": name, "input": TEXTS[name]})
        single = server.post("/v1/predict", {"model": name, "input": TEXTS[name][0]})
        (entry,) = server.get("/v1/models")["data"]
        refused = server.post("/v1/completions", {"model": name, "prompt": "a"}, 400)
    assert found["data"] == expected
    assert [row["source"] for row in single["data"]] == TEXTS[name][:1]
    assert found["task"] == entry["task"] == run.task.name
    assert "predict" in entry["able"]
    assert "which continues no text; try /v1/predict" in refused["error"]["message"]


@pytest.mark.parametrize("name", slow_after(1, FILES))
def test_files_are_predicted_as_the_run_does(run_of, name, tmp_path):
    run = run_of(name)
    file, content = FILES[name]
    (tmp_path / file).write_bytes(content)
    expected = plain([one.as_json() for one in run.predict(str(tmp_path / file))])
    with serving([run.folder]) as server:
        found = server.post("/v1/predict", {"model": name, "files": as_files(file, content)})["data"]
        text = server.post("/v1/predict", {"model": name, "input": "1 2 3"}, 400)
        damaged = server.post("/v1/predict", {"model": name, "files": as_files(file, b"\x00\xff no file")}, 400)
        packed = server.post("/v1/predict", {"model": name, "files": [{"name": file, "content": "%%%"}]}, 400)
    assert str(tmp_path) not in str(found)
    assert _without_source(found) == _without_source(expected)
    assert "reads files; give each with its name and content in base64" in text["error"]["message"]
    assert f"files.{file}: cannot be read" in damaged["error"]["message"]
    assert "is not base64" in packed["error"]["message"]


def _without_source(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "source"} for row in rows]


def test_a_text_is_never_the_name_of_a_file(run_of, tmp_path):
    (tmp_path / "secret.txt").write_text("good\nbad\nworse\n")
    with serving([run_of("labels").folder]) as server:
        found = server.post("/v1/predict", {"model": "labels", "input": str(tmp_path / "secret.txt")})
        assert len(found["data"]) == 1
        for name in ("../a.csv", "/etc/passwd", "a/b.png", "..png", "a", ""):
            body = {"model": "labels", "files": as_files(name, b"x")}
            assert "files.0.name" in server.post("/v1/predict", body, 400)["error"]["message"]


def test_settings_that_a_task_has_not_are_refused(run_of):
    with serving([run_of("labels").folder]) as server:
        body = {"model": "labels", "input": "good"}
        assert "beam" in server.post("/v1/predict", {**body, "beam": 3}, 400)["error"]["message"]
        assert "input" in server.post("/v1/predict", {"model": "labels"}, 400)["error"]["message"]
        assert server.post("/v1/predict", {"model": "labels", "input": []})["data"] == []
        assert "no vectors of texts" in server.post("/v1/embeddings", body, 400)["error"]["message"]


def test_a_prediction_ends_with_its_time_and_the_next_need_not_wait(run_of):
    run = run_of("translations")
    many = {"model": "translations", "input": ["a b c " * 190] * 256, "beam": 64}
    with serving([run.folder], limits=Limits(seconds=3)) as server:
        assert "longer than" in server.post("/v1/predict", many, 504)["error"]["message"]
        assert server.post("/v1/predict", {"model": "translations", "input": "b", "beam": 1})["data"]


def test_a_text_that_is_too_long_to_be_read_as_one_is_refused(run_of):
    with serving([run_of("labels").folder]) as server:
        refused = server.post("/v1/predict", {"model": "labels", "input": ["good", "good " * 5000]}, 400)
    assert "input.1: got 25000 characters, expected at most 20000" in refused["error"]["message"]


def test_files_of_one_name_are_not_mixed_and_a_long_name_is_no_fault(run_of):
    run = run_of("forecasts")
    name = "猫" * 100 + ".csv"  # of more bytes than the name of a file may have
    other = "value\n" + "".join(f"{i / 100:.4f}\n" for i in range(100))
    tables = [TABLE.encode(), other.encode()]
    with serving([run.folder]) as server:
        alone = [server.post("/v1/predict", {"model": "forecasts", "files": as_files(name, t)})["data"] for t in tables]
        files = [as_files(name, table)[0] for table in tables]
        both = server.post("/v1/predict", {"model": "forecasts", "files": files})["data"]
        damaged = server.post("/v1/predict", {"model": "forecasts", "files": as_files(name, b"\x00\xff")}, 400)
    assert alone[0] != alone[1]
    assert both == alone[0] + alone[1]
    assert damaged["error"]["message"].startswith(f"files.{name}: cannot be read")


def test_a_field_without_effect_is_refused(run_of):
    body = {"model": "labels", "input": "good", "files": as_files("a.csv", b"x")}
    with serving([run_of("labels").folder]) as server:
        assert "files: " in server.post("/v1/predict", body, 400)["error"]["message"]
    with serving([run_of("forecasts").folder]) as server:
        body = {"model": "forecasts", "input": "good", "files": as_files("a.csv", TABLE.encode())}
        assert "input: " in server.post("/v1/predict", body, 400)["error"]["message"]
