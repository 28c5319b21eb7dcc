"""tinyshakespeare by characters: nanoGPT's setting, every other family at equal parameters, our best LSTM.

    RECOLLECT_DATA=FOLDER python benchmarks/characters.py --device cuda [--only NAME …]

The first 90 % are trained on, the last 10 % are the validation set, evaluated in full: by attention in windows of 256
without carried memory, by the others with carried memory. nanoGPT estimates its loss on 200 random batches every 250
updates and keeps the checkpoint where that is lowest (published: 1.4697, one run); so do we for its setting, and report
both figures there. The others keep the checkpoint of the lowest validation loss (read in 32 parts side by side), as
there is no third part, and that is then evaluated in full, except for TTT. fp32 with tf32 matmuls, or bf16 where stated
in a row. Several runs share the GPU. Rows that are not run again are kept.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from common import COMMIT, data_folder, earlier, parts_side_by_side, save_result, side_by_side
from recollect.data.text.batches import Streams, Windows
from recollect.evaluation.likelihood import score_carried, validation_scores
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import nanogpt_char, parts_of, sized
from recollect.training.checkpoint import load_checkpoint
from recollect.training.loop import train
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState

BATCH, STEPS, PIECE, SAMPLES, BAR, SIX_GRAM = 64, 256, 4096, 200, 1.47, 1.5227
SLOW = ("ttt-linear", "ttt-mlp")  # at batch 1: the 32 parts side by side are their figure
Parts = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """One row: a family at nanoGPT's number of parameters, and how it was trained."""

    family: str
    dropout: float
    rate: float
    updates: int
    seed: int = 0
    layers: int | None = None
    batch: int = BATCH
    steps: int = STEPS
    precision: Literal["fp32", "bf16"] = "fp32"

    def config(self, vocab_size: int) -> LanguageConfig:
        """Return the model's config."""
        if self.family == "transformer":
            return nanogpt_char(vocab_size)
        equal = parts_of(nanogpt_char(vocab_size)).total
        return sized(self.family, vocab_size, "base", layers=self.layers, parameters=equal, dropout=self.dropout)


SETTINGS = (
    {f"nanoGPT's, seed {seed}": Setting("transformer", 0.2, 1e-3, 5000, seed) for seed in range(3)}
    | {
        "rnn": Setting("rnn", 0.3, 1e-3, 1500, precision="bf16"),
        "gru": Setting("gru", 0.4, 2e-3, 1500, precision="bf16"),
        "lstm": Setting("lstm", 0.4, 2e-3, 1500, precision="bf16"),
        "linear-attention": Setting("linear-attention", 0.3, 1e-3, 1500),
        "ttt-linear": Setting("ttt-linear", 0.3, 1e-3, 1500),
        "ttt-mlp": Setting("ttt-mlp", 0.3, 1e-3, 1500),
        "lstm, 2 layers, dropout .5": Setting("lstm", 0.5, 2e-3, 800, layers=2),
        "lstm, 2 layers, dropout .6": Setting("lstm", 0.6, 2e-3, 800, layers=2),
        "lstm, dropout .5, rate 1e-3": Setting("lstm", 0.5, 1e-3, 800),
        "lstm, 2 layers, dropout .5, 128 steps": Setting("lstm", 0.5, 3e-3, 1600, layers=2, steps=128),
    }
    | {  # long ones, by our kernels
        f"lstm, 2 layers, dropout {dropout:g}, {steps} steps, {updates} updates": Setting(
            "lstm", dropout, rate, updates, layers=2, steps=steps, precision="bf16"
        )
        for dropout, rate, steps, updates in ((0.5, 3e-3, 128, 3200), (0.6, 4e-3, 128, 4800), (0.6, 3e-3, 64, 6400))
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--share", type=float, default=1.0, help="of the updates, for a trial")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    parts, symbols = read_parts()
    rows = {row["name"]: row for row in earlier("characters")}
    for first in range(0, len(options.only), options.at_once):
        names = options.only[first : first + options.at_once]
        learners = [enrol(name, SETTINGS[name], parts, symbols, options) for name in names]
        for row in side_by_side(learners):
            rows[row["name"]] = row
            keep([rows[name] for name in SETTINGS if name in rows])


def read_parts() -> tuple[Parts, int]:
    """Return the ids of both parts, and the number of symbols."""
    text = (data_folder() / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    ids = np.array([symbols[symbol] for symbol in text], dtype=np.uint16)
    return (ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]), len(symbols)


def keep(rows: list[dict[str, Any]]) -> None:
    losses = [row["whole_set_loss"] for row in rows if row["setting"]["family"] == "transformer"]
    extra = {"median": statistics.median(losses)} if losses else {}
    save_result("characters", rows, bar=BAR, six_gram=SIX_GRAM, **extra)


def enrol(
    name: str, setting: Setting, parts: Parts, vocab_size: int, options: Any
) -> tuple[TrainingState, TrainingPlan, Callable[[], dict[str, Any]]]:
    torch.manual_seed(setting.seed)
    model = LanguageModel(setting.config(vocab_size)).to(options.device)
    optimise = Optimizer(rate=setting.rate, warmup=0.02, betas=(0.9, 0.99), weight_decay=0.1, clip_norm=1.0)
    updates = round(options.share * setting.updates)
    batches: Any = (Streams if model.carries else Windows)(parts[0], setting.batch, setting.steps, seed=setting.seed)
    plan = TrainingPlan(TrainingBudget(steps=updates), optimise, evaluate_every=250, save_every=updates + 1, keep=1)
    plan = replace(plan, precision=setting.precision)
    state = TrainingState(model, batches, optimise.build(model))
    row = {"name": name, "setting": asdict(setting), "parameters": parts_of(model.config).total, "commit": COMMIT}
    return state, plan, partial(one_run, state, plan, parts[1], row)


def one_run(state: TrainingState, plan: TrainingPlan, held_out: np.ndarray, row: dict[str, Any]) -> dict[str, Any]:
    model, curve, begun = state.model, [], time.perf_counter()

    def report(seen: dict[str, Any]) -> None:
        if "valid_loss" in seen:
            sampled = {} if model.carries else {"sampled": sampled_loss(model, held_out)}
            curve.append({"step": seen["step"], "whole": seen["valid_loss"]} | sampled)
            print(row["name"], curve[-1], time.strftime("%X"), flush=True)

    ends = parts_side_by_side(len(held_out)) if model.carries else None
    validate = partial(validation_scores, ids=held_out, steps=STEPS, ends=ends)
    with tempfile.TemporaryDirectory() as folder:
        train(state, plan, validate, Path(folder), report)
        best = min(curve, key=lambda point: point.get("sampled", point["whole"]))
        reads_whole = model.carries and row["setting"]["family"] not in SLOW
        if reads_whole:
            load_checkpoint(Path(folder) / f"step-{best['step']:08d}", model)
            best = best | {"whole": score_carried(model, held_out, PIECE).loss}
    row |= {"step": best["step"], "whole_set_loss": best["whole"], "sampled_loss": best.get("sampled"), "curve": curve}
    row |= {"seconds": time.perf_counter() - begun, "learning_seconds": state.progress.seconds}
    row |= {"tokens_per_second": state.progress.tokens / state.progress.seconds}
    row |= {
        "read": ("carried" if reads_whole else "carried, in 32 parts") if model.carries else f"cold windows of {STEPS}"
    }
    print({key: value for key, value in row.items() if key != "curve"}, [p["whole"] for p in curve], flush=True)
    return row


@torch.no_grad()
def sampled_loss(model: LanguageModel, ids: np.ndarray) -> float:
    """Return nanoGPT's estimate: the mean loss of some random batches."""
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
