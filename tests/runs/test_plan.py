"""Will it fit, and how long will it take: a forecast from really trying it, that leaves nothing behind."""

from __future__ import annotations

import json
import resource
import shlex

import pytest
import torch

from command_line import ask, run
from recollect.core.machine import available_memory, choose_device, container_limit, describe, forget_peak, peak_memory
from recollect.core.settings import SettingError
from recollect.runs.config import RunConfig
from recollect.runs.plan import forecast, updates_until_spent
from recollect.runs.scaling import ETHERNET, INFINIBAND, LINKS, update_seconds
from recollect.training.state import TrainingBudget

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my text.txt"
    path.write_text("abcdefgh " * 800, encoding="utf-8")
    return str(path)


def small(data: str, family: str = "gru", **options) -> RunConfig:
    return RunConfig.make(data, family, **({"batch_size": 4, "steps": 16, "max_steps": 500} | options))


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_a_forecast_adds_up(family, text):
    facts = forecast(small(text, family), seconds=0.1)
    assert facts["fits"]
    assert facts["updates"] == 500
    assert facts["tokens"] == pytest.approx(500 * 4 * 16, rel=0.01)
    assert facts["epochs"] == pytest.approx(facts["tokens"] / 6480, rel=0.01)  # nine tenths of the text
    assert facts["learning_seconds"] == pytest.approx(500 * facts["seconds_per_update"])
    assert facts["evaluations"] == 4  # at 0, 200, 400 and 500
    assert facts["seconds"] == pytest.approx(facts["learning_seconds"] + 4 * facts["evaluation_seconds"])
    assert facts["state_bytes"] >= 4 * 4 * facts["parameters"]  # weights, gradients and AdamW's two moments
    assert facts["state_bytes"] < facts["peak_bytes"] < facts["available_bytes"]
    grows = facts["memory_bytes"]["16000"] > 10 * facts["memory_bytes"]["1000"]
    assert grows == (family == "transformer")


def test_a_counting_model_is_tried_on_a_part(text, monkeypatch):
    monkeypatch.setattr("recollect.runs.plan.PART", 1000)
    facts = forecast(small(text, "markov"))
    assert facts["fits"]
    assert facts["tokens"] / facts["tokens_per_second"] == pytest.approx(facts["learning_seconds"])
    assert facts["tried_tokens"] == 1000
    assert facts["tokens"] == 6480


def test_what_cannot_fit_is_not_tried(text, monkeypatch):
    monkeypatch.setattr("recollect.runs.plan.available_memory", lambda device: 1_000_000)
    facts = forecast(small(text))
    assert not facts["fits"]
    assert "weights and gradients alone take" in facts["reason"]
    assert "--set width=16" in facts["next"]  # fewer rows would not help


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="CUDA's libraries alone take more room than the limit")
def test_memory_that_runs_out_is_an_answer(text):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))

    words = ["plan", text, "-m", "transformer", "--batch", "300000", "--json"]
    facts = json.loads(run(*words, preexec_fn=limit).stdout)
    assert not facts["fits"]
    assert "--batch 150000" in facts["next"]


@pytest.mark.parametrize(
    ("budget", "updates"),
    [
        (TrainingBudget(steps=7), 7),
        (TrainingBudget(tokens=1000), 10),
        (TrainingBudget(tokens=1001), 11),
        (TrainingBudget(seconds=3.0), 6),
        (TrainingBudget(steps=7, seconds=3.0), 6),
        (TrainingBudget(seconds=0.1), 1),
        (TrainingBudget(steps=10**9), 10**9),
    ],
)
def test_updates_that_a_budget_buys(budget, updates):
    assert updates_until_spent(budget, tokens=100, seconds=0.5) == updates


def test_the_next_command_is_the_whole_recipe(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"tokenizer": "byte", "max_steps": 3, "max_tokens": 9000, "seed": 5, "dropout": 0.1, "device": "cpu"}
    recipe = small(text, **options)
    following = shlex.split(forecast(recipe, seconds=0.1)["next"])
    assert following[:3] == ["recollect", "train", text]
    assert [path.name for path in tmp_path.iterdir()] == ["my text.txt"]  # nothing was written
    ask(*following[1:])
    assert json.loads((tmp_path / "runs" / "gru" / "config.json").read_text())["run"] == json.loads(
        json.dumps(recipe.as_json())
    )


def test_a_plan_is_a_table_that_ends_with_the_next_command(text):
    done = ask("plan", text, "-m", "markov")
    for name in ("fits", "speed", "time", "memory of one row", "counts of"):
        assert name in done.stdout
    assert done.stderr.startswith("Next: recollect train '")


def test_the_peak_is_seen_and_forgotten():
    forget_peak(CPU)
    before = peak_memory(CPU)
    block = torch.ones(25_000_000)  # 100 MB
    assert peak_memory(CPU) > before + 80_000_000
    del block
    forget_peak(CPU)
    assert peak_memory(CPU) < before + 50_000_000


def test_the_machine_is_named_and_its_memory_known(tmp_path):
    assert "torch" in describe(CPU)
    assert available_memory(CPU) > 100_000_000
    assert container_limit(tmp_path) > 1 << 60
    (tmp_path / "memory.max").write_text("max\n")
    assert container_limit(tmp_path) > 1 << 60
    (tmp_path / "memory.max").write_text("1048576\n")
    assert container_limit(tmp_path) == 1 << 20


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99"])
def test_devices_there_are_not_are_refused(name):
    with pytest.raises(ValueError, match=f"--device: got '{name}'"):
        choose_device(name)


def test_auto_takes_what_there_is():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


# ---- several devices -------------------------------------------------------------------------------------


def test_a_plan_for_several_devices_tries_the_rows_of_one(text):
    config = small(text, "transformer", batch_size=8)
    facts = forecast(config, seconds=0.1, devices=4)
    shared = facts["shared"]
    assert shared["rows_of_each"] == 2
    assert shared["divided_bytes"] == facts["state_bytes"] / 4
    assert facts["next"] == f"torchrun --nproc-per-node 4 -m recollect train {config.typed()}"
    for links in LINKS:
        found = shared[links.name]
        each = update_seconds(facts["seconds_per_update"], 4 * facts["parameters"], 4, links)
        assert found["seconds_per_update"] == pytest.approx(each)
        assert found["tokens_per_second"] == pytest.approx(8 * 16 / each, rel=0.01)
        assert 0 < found["computing"] < 1
        assert found["updates"] == 500
        assert found["tokens"] == pytest.approx(500 * 8 * 16, rel=0.01)
        assert found["seconds"] == pytest.approx(500 * each + 4 * facts["evaluation_seconds"])
    assert "updates" not in facts


def test_rows_that_no_number_of_devices_shares_are_refused(text):
    with pytest.raises(SettingError, match="--batch: got 4 rows for 3 processes, expected a multiple of 3; try: 3 or"):
        forecast(small(text), devices=3)
    with pytest.raises(SettingError, match="--devices: got 2, but markov is fitted by counting"):
        forecast(small(text, "markov"), devices=2)


def test_a_plan_for_several_devices_is_typed_and_printed(text):
    done = run("plan", text, "-m", "gru", "--batch", "4", "--steps", "16", "--budget", "100steps", "--devices", "2")
    assert "2 devices" in done.stdout
    assert "NVLink, InfiniBand" in done.stdout
    assert "Next: torchrun --nproc-per-node 2 -m recollect train" in done.stderr
    refused = run("plan", text, "--batch", "4", "--devices", "3", code=2)
    assert "--batch: got 4 rows for 3 processes" in refused.stderr


def test_the_model_of_communication_has_its_limits():
    alone = update_seconds(0.1, 4e9, 1, INFINIBAND)
    assert alone == 0.1
    assert update_seconds(0.1, 0.0, 8, INFINIBAND) == pytest.approx(0.1, rel=1e-3)
    for is_sharded in (False, True):
        times = [update_seconds(0.1, 4e9, n, ETHERNET, is_sharded=is_sharded) for n in (1, 2, 8, 16, 1000)]
        assert times == sorted(times)
    inside = INFINIBAND.gathering(8e9, 8)
    assert inside == pytest.approx(7 / 8 * 8e9 / (0.8 * 450e9), rel=1e-2)
    assert INFINIBAND.gathering(8e9, 1000) < 2 * 8e9 / (0.8 * 8 * 50e9) + inside  # it does not grow with N


def test_as_much_as_computing_hides_costs_nothing():
    size, links = 4e8, INFINIBAND
    sent = 2 * links.gathering(size, 8)
    long = update_seconds(100 * sent, size, 8, links)
    short = update_seconds(sent / 100, size, 8, links)
    assert long == pytest.approx(100 * sent + sent / 16)  # the last of 16 buckets
    assert short == pytest.approx(sent * (1 + 1 / 100 - 2 / 300))
    assert update_seconds(1.0, size, 8, links, is_captured=True) == pytest.approx(1 + sent)
    assert update_seconds(1.0, size, 8, links, is_sharded=True, is_captured=True) < 1 + sent
