"""nanoGPT's CPU setting on tinyshakespeare, beside nanoGPT itself in the same run: loss and tokens/s.

    RECOLLECT_DATA=FOLDER python benchmarks/nanogpt.py [--peer peers/nanoGPT] [--updates 2000]

4 layers, 4 heads, width 128, context 64, batch 12, 2000 updates, no dropout (nanoGPT's README gives 1.88, sampled). The
two are interleaved, 50 updates each, so that disturbances of the machine affect both. Of nanoGPT its model, its
optimiser and its `get_batch` are used as they are in its folder; the loop around them does what its train.py does.
Validation: the last 10 %, in full, in windows of 64 without carried memory; nanoGPT's own estimate is the mean of 200
random batches. Then ours once more at the rate that is our default, 3e-3 instead of nanoGPT's 1e-3, all else as before.
"""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import ROOT, data_folder, save_result
from recollect.data.text.batches import Windows
from recollect.evaluation.likelihood import score_windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import parts_of
from recollect.training.loop import update
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState

BATCH, STEPS, TURN, SAMPLES, BAR = 12, 64, 50, 200, 1.88
CONFIG = LanguageConfig("transformer", 65, width=128, layers=4, heads=4, max_length=STEPS, tied=True, bias=False)
OPTIMISE = Optimizer(rate=1e-3, lowest_rate=1e-4, warmup=0.05, betas=(0.9, 0.99), weight_decay=0.1, clip_norm=1.0)
SETTINGS = {"block_size": STEPS, "vocab_size": 65, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, default=ROOT / "peers" / "nanoGPT")
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args()
    if not (options.peer / "train.py").exists():
        print(f"--peer: got {options.peer}, expected a folder with nanoGPT's model.py and train.py; copy it there")
        sys.exit(2)
    text = (data_folder() / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    ids = np.array([symbols[symbol] for symbol in text], dtype=np.uint16)
    parts = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    with tempfile.TemporaryDirectory() as folder:
        compare(options, parts, Path(folder))


def compare(options: Any, parts: tuple[np.ndarray, np.ndarray], folder: Path) -> None:
    state, ours = our_updates(parts[0], options.updates, OPTIMISE)
    model, theirs = their_updates(options.peer, parts[0], options.updates, folder)
    times: dict[str, list[float]] = {"recollect": [], "nanoGPT": []}
    for done in range(0, options.updates, TURN):
        for name, updates in (("recollect", ours), ("nanoGPT", theirs)):
            begun = time.perf_counter()
            for _ in range(TURN):
                next(updates)
            times[name].append(time.perf_counter() - begun)
        if done % 500 == 0:
            print(done, {name: round(TURN * BATCH * STEPS / seen[-1]) for name, seen in times.items()}, flush=True)
    losses = {
        "recollect": our_losses(state.model, parts[1]),
        "nanoGPT": {"sampled": sampled(their_loss(model), parts[1])},
    }
    rows = [row(name, times[name], losses[name]) for name in times]
    faster, updates = our_updates(parts[0], options.updates, replace(OPTIMISE, rate=3e-3, lowest_rate=3e-4))
    for _ in updates:
        pass
    rows.append({"name": "recollect, rate 3e-3", **our_losses(faster.model, parts[1])})
    ratios = [b / a for a, b in zip(*times.values(), strict=True)]
    print(rows, f"speed ratio {statistics.median(ratios):.3f}")
    save_result("nanogpt", rows, bar=BAR, ratio=statistics.median(ratios), quartiles=statistics.quantiles(ratios, n=4))


def row(name: str, times: list[float], losses: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "tokens_per_second": TURN * BATCH * STEPS / statistics.median(times), **losses}


# ---- ours --------------------------------------------------------------------------------------------


def our_updates(text: np.ndarray, updates: int, optimise: Optimizer) -> tuple[TrainingState, Iterator[Any]]:
    torch.manual_seed(1337)
    model = LanguageModel(CONFIG)
    state = TrainingState(model, Windows(text, BATCH, STEPS, seed=1337), optimise.build(model))
    plan, source = TrainingPlan(TrainingBudget(steps=updates), optimise), iter(state.batches)
    return state, (update(state, source, plan, step / updates) for step in range(updates))


def our_losses(model: LanguageModel, ids: np.ndarray) -> dict[str, float]:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x)[0].flatten(0, 1), y.flatten())

    model.eval()
    whole = score_windows(model, ids, STEPS).loss
    return {"parameters": parts_of(CONFIG).total, "whole_set_loss": whole, "sampled": sampled(loss, ids)}


@torch.no_grad()
def sampled(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ids: np.ndarray) -> float:
    windows = zip(Windows(ids, BATCH, STEPS, seed=1), range(SAMPLES), strict=False)
    return statistics.fmean(float(loss(batch.x, batch.y)) for batch, _ in windows)


# ---- theirs ------------------------------------------------------------------------------------------


def their_updates(peer: Path, text: np.ndarray, updates: int, folder: Path) -> tuple[Any, Iterator[None]]:
    sys.path.insert(0, str(peer))
    from model import GPT, GPTConfig

    torch.manual_seed(1337)
    model = GPT(GPTConfig(**SETTINGS, bias=False))
    optimiser = model.configure_optimizers(OPTIMISE.weight_decay, OPTIMISE.rate, OPTIMISE.betas, "cpu")
    text.tofile(folder / "train.bin")
    return model, their_loop(model, optimiser, get_batch_of(peer, folder), updates)


def get_batch_of(
    peer: Path, folder: Path, batch_size: int = BATCH, steps: int = STEPS
) -> Callable[[str], tuple[torch.Tensor, torch.Tensor]]:
    """Return the function from nanoGPT's train.py, which cannot be imported without training."""
    tree = ast.parse((peer / "train.py").read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_batch"]
    scope: dict[str, Any] = {"np": np, "torch": torch, "os": os, "data_dir": str(folder), "device": "cpu"}
    scope |= {"device_type": "cpu", "block_size": steps, "batch_size": batch_size}
    exec(compile(ast.Module(found, []), "train.py", "exec"), scope)
    return scope["get_batch"]


def their_loop(model: Any, optimiser: torch.optim.Optimizer, get_batch: Any, updates: int) -> Iterator[None]:
    x, y = get_batch("train")
    for step in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = OPTIMISE.rate_at(step / updates)
        _, loss = model(x, y)
        x, y = get_batch("train")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMISE.clip_norm)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        loss.item()
        yield


def their_loss(model: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    model.eval()
    return lambda x, y: model(x, y.contiguous())[1]


if __name__ == "__main__":
    main()
