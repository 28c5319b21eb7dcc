"""Trainings that are refused: what is named, and what is left of the run."""

from __future__ import annotations

import json

import pytest

from command_line import ask
from recollect.data.text.vocabulary import fit_vocabulary
from recollect.runs.capacity import largest_setting, smaller
from recollect.runs.config import RunConfig
from recollect.runs.run import Run

FEW = ["recall:count=200", "-m", "gru", "--set", "width=8", "--budget", "1steps"]


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words: str) -> str:
    return ask(*words, code=2).stderr


def test_batches_that_cannot_be_made_leave_the_folder_to_the_next_command(folder):
    assert "lower --batch" in refused("train", *FEW, "--batch", "30000", "--out", "run")
    assert not (folder / "run/config.json").exists()
    ask("train", *FEW, "--batch", "2", "--out", "run")
    assert Run("run").config().options.batch_size == 2


def test_a_finetuning_whose_batches_cannot_be_made_leaves_the_folder_too(folder):
    ask("train", *FEW, "--batch", "2", "--out", "run")
    words = ["finetune", "run", "recall:count=200", "--task", "language", "--budget", "1steps", "--out", "child"]
    assert "lower --batch" in refused(*words, "--batch", "30000")
    ask(*words, "--batch", "2")


@pytest.mark.parametrize("more", [["width=10000000"], ["width=64", "max_length=10000000", "hidden=90000000000"]])
def test_a_model_larger_than_memory_is_refused_by_the_setting_before_there_is_a_run(more, folder):
    settings = [word for one in more for word in ("--set", one)]
    said = refused("train", "recall:count=200", "-m", "transformer", *settings, "--out", "run")
    name, _, value = more[-1].partition("=")
    assert f"{name}: got {value}" in said
    assert f"set a smaller {name}" in said
    assert not (folder / "run/config.json").exists()


def test_a_plan_of_a_model_larger_than_memory_advises_a_smaller_one():
    said = json.loads(ask("plan", "recall:count=200", "-m", "lstm", "--set", "width=1000000", "--json").stdout)
    assert said["fits"] is False
    assert "width" not in said["next"]
    assert "--batch" not in said["next"]


def test_the_setting_that_makes_a_model_large_is_found_or_its_size_is_lowered():
    wide = RunConfig.make("recall", "lstm", width=100_000, layers=3)
    assert largest_setting(wide) == "width"
    assert dict(smaller(wide).settings) == {"layers": 3}
    assert smaller(RunConfig.make("recall", "lstm", "base")).size == "small"


def test_a_budget_given_twice_is_refused():
    said = refused("train", "recall", "--budget", "2steps", "--set", "max_steps=3")
    assert "--budget: got 2steps with max_steps=3; leave one of them out" in said
    ask("train", *FEW[:-2], "--batch", "2", "--set", "max_steps=1", "--set", "max_seconds=9", "--out", "run")


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_a_vocabulary_of_characters_or_bytes_has_no_size_to_set(kind):
    words = ["train", "recall:count=200", "--tokenizer", kind, "--set", "vocab_size=20", "--out", "run"]
    assert f"vocab_size: got 20, but the tokenizer {kind} has every {kind} of the text" in refused(*words)
    assert fit_vocabulary("bpe", 1000, "tiny", 600).size == 600


def test_a_folder_without_a_name_is_refused():
    assert '--out: got "", expected the name of a folder' in refused("train", *FEW, "--out", "")


def test_a_counted_run_is_finished_and_takes_no_budget(folder):
    ask("train", "recall:count=200", "-m", "markov", "--out", "run")
    before = (folder / "run/metrics.jsonl").read_text(encoding="utf-8")
    said = ask("resume", "run").stderr
    assert "finished: markov has counted its data" in said
    assert (folder / "run/metrics.jsonl").read_text(encoding="utf-8") == before
    assert "--budget: got 5m, but markov counts its data once" in refused("resume", "run", "--budget", "5m")
    (folder / "run/model.safetensors").unlink()
    ask("resume", "run")
    assert ask("generate", "run", "a", "--tokens", "3").stderr == ""


def test_an_extension_that_cannot_begin_leaves_the_run_as_it_was(folder):
    ask("train", *FEW, "--batch", "2", "--out", "run")
    before = (folder / "run/config.json").read_bytes()
    for state in folder.glob("run/checkpoints/*/state.json"):
        state.write_text("cut", encoding="utf-8")
    assert "no intact checkpoint" in refused("resume", "run", "--budget", "5steps")
    assert (folder / "run/config.json").read_bytes() == before


@pytest.mark.parametrize(
    "setting", ["heads=9000000000000000000", "heads=1000000000000", "max_length=9000000000000000000"]
)
def test_numbers_beyond_any_model_are_refused_by_name(setting):
    name = setting.partition("=")[0]
    assert f"{name}: got" in refused("train", "recall:count=200", "-m", "transformer", "--set", setting, "--out", "run")


def test_a_batch_that_memory_does_not_hold_names_the_settings(monkeypatch):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 9.00 TiB")

    monkeypatch.setattr("recollect.runs.train.begin", fail)
    said = ask("train", *FEW, "--out", "run", code=1).stderr
    assert "memory does not suffice (Unable to allocate 9.00 TiB); set a smaller --batch" in said
