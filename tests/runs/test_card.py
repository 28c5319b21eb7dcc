"""The model card: every run has one, and nothing that a model says can break it."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys

import pytest
import torch

import recollect as rc
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.models.line import station_of
from recollect.runs.card import code, fenced, sparkline
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.tasks.language import bytes_after


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def trained(folder, family="gru", **options) -> Run:
    settings = {
        "max_steps": 6,
        "batch_size": 4,
        "steps": 16,
        "evaluate_every": 3,
        "data": "recall:count=2000",
    } | options
    begin(RunConfig.make(model=family, **settings), Run(folder), lambda row: None)
    return Run(folder)


def test_a_card_says_what_was_trained_and_how_it_went(tmp_path):
    run = trained(tmp_path / "a run")
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    losses = {row["step"]: row["valid_loss"] for row in run.metrics() if "valid_loss" in row}
    step = min(losses, key=losses.get)
    model, tokenizer = run.model, run.tokenizer
    ends = sum(p.numel() for layer in (model.body[0], model.body[-1]) for p in layer.parameters())
    body = sum(p.numel() for p in model.parameters()) - ends
    assert f"{body:,} parameters in the body, {ends:,} in embeddings and output" in card
    assert f"主体 {body:,}，词嵌入与输出层 {ends:,}" in card
    assert f"vocabulary {tokenizer.vocab_size}" in card
    best = f"{losses[step]:.4f} nats per symbol, {losses[step] / math.log(2):.4f} bits per character, at step {step}"
    assert best in card
    assert f"{4 * model.config.width:,} bytes after 1,000 symbols" in card
    sample = next(row for row in run.samples() if row["step"] == step)
    assert sample["prompt"] + sample["text"] in card
    assert f"recollect resume '{run.folder}'" in card  # a folder with a blank can be typed
    for words in ("## 中文", "(2014, Cho et al. 2014)", "torch", "6 steps", "6 updates"):
        assert words in card


def test_a_counting_model_has_a_card_without_what_it_cannot_do(tmp_path):
    card = (trained(tmp_path / "run", "markov").folder / "README.md").read_text(encoding="utf-8")
    assert "recollect generate" in card
    assert "recollect resume" not in card


def test_a_translators_window_is_not_that_of_windowed_attention(tmp_path):
    small = {"width": 16, "heads": 2, "hidden": 16, "batch_size": 2}
    rc.train("reversed", model="transformer", budget="1steps", out=tmp_path / "run", **small)
    assert "(2017, Vaswani et al. 2017)" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_that_is_stopped_has_a_card(tmp_path):
    command = [
        sys.executable,
        "-m",
        "recollect",
        "train",
        "recall",
        "--budget",
        "100000steps",
        "--out",
        "run",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout
        for count, _ in enumerate(process.stdout):
            if count == 3:
                os.kill(process.pid, signal.SIGINT)
                break
        process.communicate()
    assert process.returncode == 130
    assert "recollect resume run" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_the_fence_is_longer_than_any_in_the_text():
    text = "a\n```\n# not a heading\n````` b \x1b[2J"
    first, *inside, last = fenced(text).split("\n")
    assert first == "``````text"
    assert last == "``````"
    assert not any(line.startswith(last) for line in inside)
    assert "\x1b" not in fenced(text)


@pytest.mark.parametrize("text", ["plain.txt", "a`b``c.txt", "a|b.txt", "`", "two\nlines"])
def test_a_code_span_holds_any_name(text):
    span = code(text)
    fence = re.match("`+", span)[0]
    assert span.endswith(fence)
    assert fence not in span[len(fence) : -len(fence)].strip() or "`" not in text
    assert "\n" not in span
    assert not re.search(r"(?<!\\)\|", span)


def test_a_sparkline_falls_with_the_loss():
    assert sparkline([4.0, 2.0, 1.0, 0.5]) == "█▄▂▁"
    assert sparkline([3.0]) == "▁"
    assert len(sparkline([1 / (n + 1) for n in range(500)])) == 40


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_are_those_of_really_reading(family):
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig(family, 11, width=16, layers=2))
    with torch.no_grad():
        memory = model.eval()(torch.randint(11, (1, 300)))[1]
    assert bytes_after(model, 300) == memory.nbytes


def test_bytes_of_a_window_saturate():
    model = LanguageModel(LanguageConfig("transformer", 11, width=16, window=32))
    assert bytes_after(model, 1_000) == bytes_after(model, 16_000)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_station(family):
    assert station_of(family) is not None
