"""`recollect doctor` and `recollect bench` as a user types them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from command_line import ask, run
from recollect.cli import doctor
from recollect.cli.doctor import Diagnosis, is_supported
from recollect.core import dispatch

ROOT = Path(__file__).resolve().parents[2]
LAYERS, FAMILIES = ["RNN", "GRU", "LSTM", "SelfAttention"], ["rnn", "gru", "lstm", "transformer"]


@pytest.fixture
def healthy(tmp_path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": "", "OMP_NUM_THREADS": "1"}


def findings(stdout: str) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(stdout)["findings"]}


def test_doctor_has_a_line_for_everything(healthy, tmp_path):
    lines = run("doctor", env=healthy).stdout.splitlines()
    states = {line[8:].split("  ")[0]: line.split()[0] for line in lines if not line.startswith(" ")}
    assert set(states.values()) <= {"ok", "absent"}
    for name in ("python", "torch", "threads", "memory", "cache", "browser", "layers"):
        assert states[name] == "ok"
    assert {"generation", "C compiler", "AVX-512", "AMX", "bf16", "CUDA graphs", "NVRTC"} <= set(states)
    assert any(str(tmp_path / "cache" / "recollect") in line for line in lines)


def test_doctor_with_a_cache_that_cannot_be_written_fails(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = ask("doctor", "--json", code=1)
    assert not json.loads(done.stdout)["ok"]
    cache = findings(done.stdout)["cache"]
    assert cache["state"] == "broken"
    assert str(tmp_path / "file") in cache["says"]
    assert f"Try: {cache['next']}" in done.stderr


@pytest.mark.parametrize("source", ["__version__ = '2.99.0'", "raise ImportError('libtorch is gone')"])
def test_doctor_with_a_torch_that_will_not_do_fails(source, healthy, tmp_path):
    (tmp_path / "torch.py").write_text(source, encoding="utf-8")
    paths = [str(tmp_path), str(ROOT / "src")]
    done = run("doctor", env={**healthy, "PYTHONPATH": os.pathsep.join(paths)}, code=1)
    assert re.search(r"^broken +torch +.*(2\.99\.0|libtorch is gone)", done.stdout, re.MULTILINE)
    assert 'pip install "torch>=2.8,<2.14"' in done.stderr


def test_the_range_of_torch_is_that_of_the_metadata():
    assert f'"torch{doctor.TORCH_WANTED}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    low, high = (".".join(map(str, version)) for version in doctor.TORCH)
    assert f">={low},<{high}" == doctor.TORCH_WANTED
    assert is_supported("2.8.0")
    assert is_supported("2.13.0+cpu")
    assert not is_supported("2.7.1")
    assert not is_supported("2.14.0.dev20260101")
    assert not is_supported("3.0")


def test_doctor_asks_dispatch_why_forms_are_not_used(monkeypatch):
    monkeypatch.setattr(dispatch._switch, "is_on", True)
    monkeypatch.setattr(dispatch, "_forms", {("reasons", "cpu"): lambda: ["recurrent layers, float64: planted"]})
    monkeypatch.setattr(dispatch, "_tried", {"cpu", "cuda"})
    monkeypatch.setattr(dispatch, "_missing", {})
    assert Diagnosis("cpu forms", "absent", "recurrent layers, float64: planted") in doctor.check_fast_forms()
    with dispatch.without_accel():
        assert "RECOLLECT_ACCEL=off" in doctor.check_fast_forms()[0].says
        assert "RECOLLECT_ACCEL=off" in doctor.check_compiler()[0].says


def test_doctor_says_that_device_code_is_not_installed(monkeypatch):
    monkeypatch.setattr(dispatch._switch, "is_on", True)
    monkeypatch.setattr(dispatch, "_forms", {})
    monkeypatch.setattr(dispatch, "_tried", set())
    monkeypatch.setattr(dispatch, "_missing", {})
    monkeypatch.setitem(sys.modules, "recollect.accel.cpu", None)
    assert doctor.check_compiler()[0].says == "not used: recollect.accel.cpu is not installed"
    assert Diagnosis("cpu forms", "absent", "recollect.accel.cpu is not installed") in doctor.check_fast_forms()


def test_a_check_that_fails_keeps_no_other_from_being_made(monkeypatch):
    def check_planted() -> list[Diagnosis]:
        raise OSError("planted")

    monkeypatch.setattr(doctor, "PLAIN", (check_planted, doctor.check_extras))
    monkeypatch.setattr(doctor, "WITH_TORCH", ())
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["planted"] == Diagnosis("planted", "absent", "the check failed: OSError: planted")
    assert found["browser"].state == "ok"


# ---- bench -------------------------------------------------------------------------------------------


def test_bench_prints_and_keeps_the_same_record(tmp_path):
    done = ask("bench", "--quick", "--json", "--out", str(tmp_path / "bench.json"))
    kept = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == kept
    known = json.loads((ROOT / "benchmarks" / "results" / "layers.json").read_text(encoding="utf-8"))
    assert {"name", "date", "command", "machine", "versions", "commit", "rows", "setting"} <= set(kept) & set(known)
    assert kept["command"] == "recollect bench --quick"
    assert [row["layer"] for row in kept["rows"]] == [*LAYERS, *FAMILIES]
    for row in kept["rows"]:
        assert row["ours_ms"] > 0
        assert row["share_of_floor"] > 0
        assert row["largest_difference"] <= row["tolerance"]


@pytest.mark.slow
def test_bench_shows_a_line_for_every_row_and_says_what_they_are():
    lines = run("bench", "--quick", env=one_thread()).stdout.splitlines()
    assert [line.split()[0] for line in lines[:9]] == ["layer", *LAYERS, *FAMILIES]
    assert all(re.search(r" \d+\.\d\dx +\d+% +\d+% ", line) for line in lines[1:9])
    assert "TFLOP/s" in lines[-1]


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}  # two would wait for each other where tests run side by side


def test_bench_refuses_a_folder_that_is_not_there_before_it_begins(tmp_path):
    done = ask("bench", "--out", str(tmp_path / "none" / "bench.json"), code=2)
    assert "recollect bench --out bench.json" in done.stderr
    assert not done.stdout


def test_bench_without_a_gpu_says_whom_to_ask():
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    assert "recollect doctor" in run("bench", "--gpu", "--quick", code=2, env=env).stderr
