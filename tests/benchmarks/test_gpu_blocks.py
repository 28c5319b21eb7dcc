"""The tables of what was measured on a GPU, from made-up rows: every figure is there, in both languages."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
writer = importlib.import_module("readme")

SAYS = pytest.mark.parametrize("say", [writer.english, writer.chinese], ids=["en", "zh"])


@pytest.fixture
def block(monkeypatch, tmp_path):
    """Give the block of a file that holds these rows."""
    known = writer.load("growth")
    monkeypatch.setattr(writer, "ROOT", tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)

    def write(name, rows, say, **extra):
        file = writer.BLOCKS[name][0]
        result = known | {"name": file, "rows": rows, "command": f"python benchmarks/{name}.py"} | extra
        writer.path_of(file).write_text(json.dumps(result), encoding="utf-8")
        return writer.block_of(name, say)

    return write


def walked(ratio=2.0, in_graphs=1.5, **changed):
    case = {"cell": "lstm", "dtype": "bfloat16", "batch": 64, "hidden": 512, "layers": 1, "directions": 1}
    us = {"ours": 2.0, "ours in a graph": 1.0, "torch.nn": 2.0 * ratio, "torch.nn in a graph": in_graphs}
    row = case | {"goal": False, "chosen": True, "pass": "forward", "steps": 256, "rounds": 9, "us_per_step": us}
    row |= {"errors": {"y": [0.002, 0.003], "dx": [0.004, 0.004], "dw": [0.0041, 0.0051]}}
    row |= {"ratio": ratio, "ratio_in_graphs": in_graphs, "slower": ratio < 1, "slower_in_graphs": in_graphs < 1}
    return row | changed


GOALS = [
    walked(8.0, goal=True, steps=1024, rounds=30),
    walked(0.8, goal=True, steps=1024, rounds=31, layers=4),
    walked(5.0, goal=True, steps=1024, rounds=30, directions=2, **{"pass": "forward + backward"}),
]


@SAYS
def test_recurrent_goals(block, say):
    lines = block("recurrent", GOALS, say).splitlines()
    assert f"| LSTM | bfloat16 | {say('forward')} | 64 | 512 | 2.00 / 1.00 | 16.00 / 1.50 | 8.00 / 1.50 |" in lines[4]
    assert lines[4].endswith("| 0.0020 / 0.0030 | 0.0041 / 0.0051 |")
    assert lines[5].startswith(f"| LSTM, {say('{} layers').format(4)} |")
    assert "| **0.80** / 1.50 |" in lines[5]
    assert lines[6].startswith(f"| LSTM, {say('two directions')} | bfloat16 | {say('forward + backward')} |")
    assert sum(line.startswith("| LSTM") for line in lines) == 3  # no grid
    assert "30" in lines[-1]
    assert "1024" in lines[-1]


@SAYS
def test_recurrent_grid(block, say):
    grid = [
        walked(1.2, hidden=64, batch=1),
        walked(0.9, 0.7, hidden=128, batch=1, chosen=False),
        walked(3.0, cell="gru", rounds=5),
    ]
    written = block("recurrent", [*GOALS, *grid], say)
    lines = written.splitlines()
    assert f"| {say('grid')} | {say('pass')} | B | H 64 | H 128 | H 512 |" in lines
    assert f"| LSTM | {say('forward')} | 1 | 1.20 / 1.50 | (**0.90** / **0.70**) |  |" in lines
    assert f"| LSTM | {say('forward')} | 64 |  |  | 8.00 / 1.50 |" in lines  # a goal's row is on the grid too
    assert f"| GRU | {say('forward')} | 64 |  |  | 3.00 / 1.50 |" in lines
    facts = {"rounds": 5, "steps": 256, "chosen": "75%", "slower": 1, "count": 4, "slower_in_graphs": 1}
    assert say(writer.gpu_blocks.GRID_NOTE).format(**facts) in written


@SAYS
def test_decoding(block, say):
    rows = [
        {"part": "gpt2", "setting": "the same as reading all again, float32", "clear": 250, "same": 249, "tokens": 256},
        spoken("gpt2", "batch 1", "static", 6000.4, 3000.0),
        spoken("gpt2", "batch 1, transformers", "transformers", 6000.4, 25.0),
        spoken("lstm", "batch 64", "torch", 132403.0, 45154.0),
        flat("lstm", 131072, 42.0, 0.02),
        flat("lstm", 1024, 40.0, 0.5),
        flat("ttt-linear", 1024, 80.0, 0.3),
    ]
    written = block("decoding_gpu", rows, say)
    lines = written.splitlines()
    beside = {name: say(words) for name, words in writer.gpu_blocks.BESIDE.items()}
    assert f"| gpt2 | {beside['static']} | 1 | 6,000 | 3,000 | 2.00 |" in lines
    assert f"| gpt2 | {beside['transformers']} | 1 | 6,000 | 25 | 240.02 |" in lines
    assert f"| lstm | {beside['torch']} | 64 | 132,403 | 45,154 | 2.93 |" in lines
    assert "| lstm | 40.0 | 42.0 | 1.05 |" in lines
    assert "| ttt-linear | 80.0 |  | 1.00 |" in lines
    assert say(writer.gpu_blocks.SAME_NOTE).format(same=249, clear=250, all=256).strip() in lines[-1]
    assert "0.02" in lines[-1]


@SAYS
def test_decoding_of_one_part_alone(block, say):
    written = block("decoding_gpu", [spoken("lstm", "batch 1", "torch", 9655.3, 457.5)], say)
    assert written.count("\n| --- |") == 1
    assert "| 1 | 9,655 | 458 | 21.10 |" in written
    assert "GPT-2" not in written


def spoken(part, setting, peer, ours, theirs):
    speeds = {"ours_tokens_per_s": ours, f"{peer}_tokens_per_s": theirs}
    return {"part": part, "setting": setting, **speeds, f"times_{peer}": ours / theirs, "took_s": 1.0}


def flat(family, context, us, moved):
    return {"part": "flat", "setting": f"{family}, after {context}", "us_per_token": us, "first_moved": moved}


@SAYS
def test_training(block, say):
    ways = ("kernels", "plain", "plain, captured", "plain, tf32, captured")
    row = {"setting": "PTB, medium LSTM", "tokens_per_second": dict(zip(ways, (3e5, 1e5, 1.5e5, 2e5), strict=True))}
    row |= {"ratio": dict(zip(ways[1:], (3.0, 2.0, 1.5), strict=True)), "last_loss": dict.fromkeys(ways, 6.6535)}
    written = block("kernel_training", [row], say, updates=40, rounds=4)
    assert f"| PTB, medium LSTM | {say('kernels')} | 300,000 |  | 6.654 |" in written
    assert f"| PTB, medium LSTM | {say('plain, captured')} | 150,000 | 2.00 | 6.654 |" in written
    assert say(writer.gpu_blocks.TRAINING_NOTE).format(rounds=4, updates=40) in written
    assert "RECOLLECT_DATA=FOLDER python benchmarks/kernel_training.py" in written


@SAYS
def test_penn_treebank_names_products_and_biases(say):
    result = writer.load("ptb")
    found = {"family": "lstm", "size": "medium", "rate": 1.0, "first": 6, "decay": 0.5, "seed": 0}
    found |= {"parameters": 1000, "valid_perplexity": 86.828, "test_perplexity": 83.391}
    lost = {"valid_perplexity": None, "test_perplexity": None, "diverged": True}
    rows = [found, found | {"precision": "bf16", "biases": 1}, found | {"precision": "fp32", "biases": 1} | lost]
    lines = writer.language_blocks.ptb_block(result | {"rows": rows}, say).splitlines()
    name = f"| lstm, {say('medium')} | 1,000 |"
    figures = "86.83 | 83.39 | 82.1 |"
    assert lines[2] == f"{name} tf32 | 2 | 1 | 6 | 0.5 | 0 | {figures}"
    assert lines[3] == f"{name} bf16 | 1 | 1 | 6 | 0.5 | 0 | {figures}"
    assert lines[4] == f"{name} tf32 | 1 | 1 | 6 | 0.5 | 0 | {say('diverged')} | {say('diverged')} | 82.1 |"
    assert all(line.count("|") == lines[0].count("|") for line in lines[:6])


@SAYS
def test_losses_of_several_seeds(block, say):
    losses = {"kernels": (1.25, 1.75), "plain": (1.5,)}
    rows = [
        {"setting": "PTB", "way": way, "seed": seed, "loss": loss, "commit": "abc"}
        for way, found in losses.items()
        for seed, loss in enumerate(found)
    ]
    lines = block("kernel_losses", rows, say).splitlines()
    assert f"| PTB | {say('kernels')} | abc | 1.500 | 1.250, 1.750 |" in lines
    assert f"| PTB | {say('plain')} | abc | 1.500 | 1.500 |" in lines
