"""What a run writes down while it learns, without moving it by a bit."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recollect.data.text.corpus import Corpus
from recollect.data.text.tokenizer import Tokenizer
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import sized
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin, resume, start
from recollect.tasks.language import LanguageTask, first_words
from recollect.training.loop import train


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def small(family: str = "gru", **options) -> RunConfig:
    settings = {
        "max_steps": 8,
        "batch_size": 4,
        "steps": 16,
        "evaluate_every": 4,
        "data": "recall:count=2000",
    } | options
    return RunConfig.make(model=family, **settings)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_run_with_samples_equals_one_without(family, tmp_path):
    recipe = small(family, dropout=0.2)
    begin(recipe, Run(tmp_path / "with"), lambda row: None)
    task = recipe.make_task()
    corpus = task.open(recipe.data)
    torch.manual_seed(recipe.training.seed)
    model = LanguageModel(sized(family, corpus.tokenizer.vocab_size, dropout=0.2))
    trainee = start(recipe, task, model, corpus)
    plan = recipe.training.plan(trainee.batches.predicted)
    train(trainee, plan, lambda model: task.measure(model, corpus, "valid"), tmp_path / "without")
    theirs = sorted((tmp_path / "without" / "step-00000008").glob("*.safetensors"))
    assert {path.stem for path in theirs} >= {"model", "optimizer", "random"}
    for path in theirs:
        ours = load_file(tmp_path / "with" / "checkpoints" / "step-00000008" / path.name)
        assert all(torch.equal(ours[name], value) for name, value in load_file(path).items())


def test_every_evaluation_has_a_sample_and_resuming_cuts_them(tmp_path):
    run, rows = Run(tmp_path / "run"), []
    begin(small(), run, rows.append)
    run.log({"step": 99, "prompt": "a", "text": "from a life that a crash ended"}, "samples")
    with (tmp_path / "run" / "samples.jsonl").open("a") as file:
        file.write('{"step": 1')  # and a line it never finished
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["run"]["training"]["max_steps"] = 12
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    resume(run, rows.append, lambda text: None)
    samples = run.samples()
    assert [row["step"] for row in samples] == [0, 4, 8, 12]
    assert {len(row["prompt"]) for row in samples} == {8}
    assert {len(row["text"]) for row in samples} == {60}
    told = [row["sample"] for row in rows if "valid_loss" in row]
    assert told == [row["prompt"] + row["text"] for row in samples]
    assert [row["step"] for row in run.metrics() if "valid_loss" in row] == [0, 4, 8, 12]


def test_rows_tell_share_best_and_carried_bytes(tmp_path):
    rows = []
    begin(small(), Run(tmp_path / "run"), rows.append)
    assert [row["share"] for row in rows if "train_loss" in row] == [n / 8 for n in range(1, 9)]
    last = rows[-1]
    assert last["best"] == min(row["valid_loss"] for row in rows if "valid_loss" in row)
    hidden = Run(tmp_path / "run").model.config.width
    assert last["memory_bytes"] == 4 * hidden * 4  # four rows of float32


def test_counting_is_logged_as_well(tmp_path):
    run = Run(tmp_path / "run")
    begin(small("markov"), run, lambda row: None)
    assert [row["step"] for row in run.metrics()] == [0]
    assert len(run.samples()) == 1


def test_first_words_end_with_a_whole_character():
    tokenizer = Tokenizer("byte")
    assert first_words(tokenizer, np.array(list("记忆是什么".encode()))) == "记忆"  # of eight bytes six are used


def test_a_sample_stays_inside_a_table_of_positions():
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig("transformer", 256, width=16, max_length=20))
    ids, ends = np.arange(8), np.array([8])
    corpus = Corpus(Tokenizer("byte"), ids, ids, ids, {"train": ends, "valid": ends, "test": ends}, "eight bytes")
    assert len(LanguageTask().sample(model, corpus)[1].encode()) >= 1  # 60 more would be refused


def test_a_prompt_is_of_symbols_that_the_run_knows(tmp_path):
    run = Run(tmp_path / "run")
    begin(small(), run, lambda row: None)
    for known, prompt in (("a1 b2", "a1 b2"), ("\n  a1\ufffdc", "  a1"), ("你好", run.tokenizer.symbols[0])):
        run.log({"step": 9, "prompt": known, "text": ""}, "samples")
        assert run.prompt() == prompt


def test_tensorboard_shows_the_metrics(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    begin(small(tensorboard=True), Run(tmp_path / "run"), lambda row: None)
    shown = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in shown.Scalars("valid_loss")] == [0, 4, 8]
    logged = [row["train_loss"] for row in Run(tmp_path / "run").metrics() if "train_loss" in row]
    assert [event.value for event in shown.Scalars("train_loss")] == pytest.approx(logged)


def test_tensorboard_that_is_missing_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'recollect\[tensorboard\]'"):
        begin(small(tensorboard=True), Run(tmp_path / "run"), lambda row: None)
    assert not (tmp_path / "run").exists()
