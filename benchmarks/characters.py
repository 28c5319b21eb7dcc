"""nanoGPT's character setting on tinyshakespeare: whole-set validation loss beside nanoGPT's sampled estimate.

    RECOLLECT_DATA=FOLDER python benchmarks/characters.py --device cuda

The first 90 % are trained on, the last 10 % are the validation set, which is read whole in cold windows of 256. nanoGPT
estimates its loss on 200 random batches every 250 updates and keeps the checkpoint where that is lowest (published:
1.4697, one run); so do we, and give both figures there. 5000 updates, batch 64, fp32 with tf32 products.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from common import data_folder, save_result
from recollect.data.batches import Windows
from recollect.models.language import LanguageModel, count_parameters
from recollect.models.sizes import nanogpt_char
from recollect.optimise import Optimise
from recollect.train import Budget, Plan, Trainee, train

BATCH, STEPS, UPDATES, EVERY, SAMPLES, BAR = 64, 256, 5000, 250, 200, 1.47


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    text = (data_folder() / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    ids = np.array([symbols[symbol] for symbol in text], dtype=np.uint16)
    border = int(0.9 * len(ids))
    rows = [one_seed(seed, options.device, ids[:border], ids[border:], len(symbols)) for seed in options.seeds]
    median = statistics.median(row["whole_set_loss"] for row in rows)
    print(f"median of {len(rows)} seeds: {median:.4f} (bar {BAR})")
    save_result("characters", rows, median=median, bar=BAR, parameters=count_parameters(nanogpt_char(len(symbols))))


def one_seed(seed: int, device: str, text: np.ndarray, held_out: np.ndarray, vocab_size: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = LanguageModel(nanogpt_char(vocab_size)).to(device)
    optimise = Optimise(rate=1e-3, lowest_rate=1e-4, warmup=0.02, betas=(0.9, 0.99), weight_decay=0.1, clip_norm=1.0)
    plan = Plan(Budget(steps=UPDATES), optimise, evaluate_every=EVERY, save_every=UPDATES + 1, steps=STEPS, keep=1)
    trainee = Trainee(model, Windows(text, BATCH, STEPS, seed=seed), optimise.build(model))
    curve: list[dict[str, Any]] = []

    def report(row: dict[str, Any]) -> None:
        if "valid_loss" in row:
            curve.append({"step": row["step"], "whole": row["valid_loss"], "sampled": sampled_loss(model, held_out)})

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(trainee, plan, held_out, Path(folder), report)
    best = min(curve, key=lambda point: point["sampled"])
    result = {"seed": seed, "step": best["step"], "whole_set_loss": best["whole"], "sampled_loss": best["sampled"]}
    result |= {"seconds": time.perf_counter() - begun, "learning_seconds": trainee.progress.seconds, "curve": curve}
    result["tokens_per_second"] = trainee.progress.tokens / trainee.progress.seconds
    print({name: value for name, value in result.items() if name != "curve"}, flush=True)
    return result


@torch.no_grad()
def sampled_loss(model: LanguageModel, ids: np.ndarray) -> float:
    """Give nanoGPT's estimate: the mean loss of some random batches."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    total = 0.0
    for batch, _ in zip(Windows(ids, BATCH, STEPS, seed=1337), range(SAMPLES), strict=False):
        logits = model(batch.x.to(device))[0]
        total += float(F.cross_entropy(logits.flatten(0, 1), batch.y.to(device).flatten()))
    model.train(was_training)
    return total / SAMPLES


if __name__ == "__main__":
    main()
