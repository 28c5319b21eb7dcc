"""`recollect serve` as a user types it: what it refuses, what it prints, and how it stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import openai
import pytest
import torch

import recollect as rc
from command_line import ask
from recollect.cli.serve_verb import KEY, SHAPES
from recollect.data.error import DataError
from recollect.serving import served
from recollect.serving.app import listen

SMALL = {"width": 8, "layers": 1, "budget": "2steps", "batch_size": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    return rc.train("recall:count=200", model="lstm", out=tmp_path_factory.mktemp("serve") / "run", **SMALL).folder


@pytest.fixture(autouse=True)
def folder(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test's process keeps its own
    shutil.copytree(run_folder, "run")


def refused(*words: str, code: int = 2) -> str:
    done = ask("serve", *words, code=code)
    assert not done.stdout
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    return done.stderr


def test_a_port_in_use_is_refused_with_another(monkeypatch):
    monkeypatch.setenv(SHAPES[0], "1")
    monkeypatch.delenv(SHAPES[0])  # it is deleted afterwards too
    with listen(0) as taken:
        port = taken.getsockname()[1]
        said = refused("run", "--port", str(port), "--batch", "8")
    assert f"--port: {port} of 127.0.0.1 cannot be used (Address already in use)" in said
    assert f"recollect serve run --port {port} --batch 8 --port 0" in said
    assert os.environ[SHAPES[0]] == SHAPES[1]  # before anything is computed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone"], "gone"),
        (["."], "."),
        (["run", "--port", "70000"], "--port: got 70000, expected 0 to 65535"),
        (["run", "--batch", "0"], "--batch"),
        (["run", "--device", "tpu"], "tpu"),
        (["run", "--set", "nonsense=1"], "--set nonsense: no such setting of serve, which has timeout, grace"),
        (["run", "--set", "timeout=0"], "--set timeout: got 0, expected a number, at least 1"),
        (["run", "--key-file", "gone"], "--key-file: gone cannot be read"),
        (
            ["run", "--set", "allow_origin=*"],
            "--set allow_origin: got '*', expected names like https://app.example.org",
        ),
        (["run", "--set", "allow_origin=https://a.org/"], "--set allow_origin: got 'https://a.org/'"),
        (["run", "--set", "allow_host=https://a.org"], "--set allow_host: got 'https://a.org'"),
    ],
)
def test_what_cannot_be_served_is_refused(words, message, tmp_path):
    if words == ["."]:
        shutil.rmtree("run")
    assert message in refused(*words, "--port", "0") if "--port" not in words else refused(*words)


def test_another_address_needs_a_key_of_some_length():
    assert "can be reached from elsewhere and needs a key" in refused("run", "--host", "0.0.0.0")
    Path("KEYS").write_text("short\n")
    said = refused("run", "--host", "0.0.0.0", "--key-file", "KEYS")
    assert "fewer than 16 characters" in said
    assert "short" not in said


def test_a_key_of_the_environment_needs_the_same_length(monkeypatch):
    monkeypatch.setenv(KEY, "short")
    said = refused("run", "--port", "0")
    assert f"{KEY}: holds no key, or one of fewer than 16 characters" in said
    assert "short" not in said


def test_a_run_without_its_weights_and_a_damaged_one_are_refused():
    weights = Path("run/model.safetensors")
    content = weights.read_bytes()
    shutil.rmtree("run/checkpoints")  # from which both would be restored
    weights.unlink()
    assert "run" in refused("run", "--port", "0")
    weights.write_bytes(content[: len(content) // 2])
    assert "model.safetensors: damaged" in refused("run", "--port", "0")


def test_models_that_do_not_fit_into_memory_are_refused_before_any_is_read(monkeypatch):
    monkeypatch.setattr(served, "free_memory", lambda device: 1000)
    assert "the weights of all models take" in refused("run", "--port", "0")


def test_models_must_fit_into_the_memory_of_the_device_that_is_chosen(monkeypatch):
    free = {"cpu": 2**40, "cuda": 1000}
    monkeypatch.setattr(served, "choose_device", lambda name: torch.device(name))
    monkeypatch.setattr(served, "free_memory", lambda device: free[device.type])
    with pytest.raises(DataError, match=r"0\.0 GiB of cuda are free; serve fewer models"):
        served.open_served(["run"], "cuda")
    assert [one.name for one in served.open_served(["run"], "cpu")] == ["run"]


@contextmanager
def begun(*more: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A server in a process of its own, with its address; killed with the block if it still runs."""
    words = [sys.executable, "-m", "recollect", "serve", "run", "--port", "0", "--sessions", "kept", *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.fullmatch(r"Serving run: (http://127.0.0.1:\d+)/v1\n", process.stdout.readline())
            assert found, process.stderr.read()
            yield process, found[1]
        finally:
            process.kill()


def post(address: str, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address + path, data, {"Content-Type": "application/json"}, method="POST")
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def stopped(process: subprocess.Popen, how: signal.Signals, code: int) -> list[str]:
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    return said.splitlines()


@pytest.mark.slow
def test_a_session_outlives_the_server_that_is_stopped(run_folder):
    run = rc.load("run", device="cpu")
    prompt = run.prompt()
    settings = {"model": "run", "max_tokens": 20, "temperature": 0.8, "seed": 3}
    with begun() as (process, address):
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
            parts = list(client.completions.create(**settings, prompt=prompt, stream=True))
        streamed = "".join(part.choices[0].text for part in parts)
        name = post(address, "/v1/sessions", {"model": "run", "text": prompt})["id"]
        first = post(address, "/v1/completions", {**settings, "session": name})["choices"][0]["text"]
        second_server = ask("serve", "run", "--port", "0", "--sessions", "kept", code=2).stderr
        shutil.rmtree("run")  # it is loaded, and goes on being served
        assert post(address, "/v1/completions", {**settings, "prompt": prompt})["choices"][0]["text"] == streamed
        *lines, last = stopped(process, signal.SIGTERM, 0)
    assert "another server has kept; stop it, or name another folder" in second_server
    said = ask("generate", str(run_folder), prompt, "--tokens", "20", "--seed", "3", "--json").stdout
    assert streamed == first == json.loads(said)["text"]
    assert last == (
        "recollect: stopped; 1 sessions saved in kept. Again with: recollect serve run --port 0 --sessions kept"
    )
    assert all(prompt not in line for line in lines)
    assert {json.loads(line)["event"] for line in lines if line.startswith("{")} == {"request"}
    shutil.copytree(run_folder, "run")
    with begun() as (process, address):
        assert post(address, f"/v1/sessions/{name}/load")["symbols"] == len(prompt) + 20
        again = post(address, "/v1/completions", {**settings, "session": name})["choices"][0]["text"]
        stopped(process, signal.SIGINT, 130)
    how = {"tokens": 20, "temperature": 0.8, "seed": 3}
    assert again == run.generate(prompt + first, **how).removeprefix(prompt + first)
