"""Penn Treebank: the LSTMs of Zaremba et al. (2014), with RNN and GRU beside them and the 5-gram.

    RECOLLECT_DATA=FOLDER python benchmarks/ptb.py --device cuda [--size medium] [--only "lstm, seed 0" …]

Two layers of 200 units without dropout (small) or of 650 with dropout .5 (medium), batch 20, memory carried, truncated
after 20 or 35 steps, clipped at norm 5, plain SGD: rate 1 for 4 epochs and halved at each later one, 13 in all (small);
rate 1 for 6 epochs and divided by 1.2 at each later one, 39 in all (medium), or for 7, as the authors' code has it
(`--first 7`). The paper's loss is a sum over the steps of a chunk; ours is a mean, so that rate and norm are scaled by
their number. RNN and GRU have the LSTM's width and schedule, and lower rates are tried for them. Gates have two biases,
as in the authors' code, or one, as in the paper, which is worse here. The epoch is chosen on validation, read in 32
parts side by side; the figures are then those of the whole text, with memory carried, at batch 1. Matmuls are tf32, or
bf16 by our kernels with `--precision`. Runs share the GPU; rows that are not run again are kept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from common import COMMIT, data_folder, earlier, parts_side_by_side, save_result, side_by_side
from recollect.data.text.batches import Streams
from recollect.data.text.source import read_text as read
from recollect.data.text.tokenizer import Tokenizer
from recollect.evaluation.likelihood import score_carried, validation_scores
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.models.language import LanguageModel
from recollect.models.sizes import parts_of, zaremba
from recollect.training.checkpoint import load_checkpoint
from recollect.training.loop import train
from recollect.training.optimizer import Optimizer
from recollect.training.state import Diverged, TrainingBudget, TrainingPlan, TrainingState

BATCH, CLIP, PIECE = 20, 5.0, 1000
SIZES: dict[str, dict[str, Any]] = {
    "small": {"steps": 20, "epochs": 13, "first": 4, "decay": 1 / 2, "bar": 116.5, "published": 115.9},
    "medium": {"steps": 35, "epochs": 39, "first": 6, "decay": 1 / 1.2, "bar": 82.5, "published": 82.07},
}
RUNS = {  # family, seed, rate
    "lstm, seed 0": ("lstm", 0, 1.0),
    "lstm, seed 1": ("lstm", 1, 1.0),
    "gru, rate 1": ("gru", 0, 1.0),
    "gru, rate .3": ("gru", 0, 0.3),
    "rnn, rate 1": ("rnn", 0, 1.0),
    "rnn, rate .3": ("rnn", 0, 0.3),
    "rnn, rate .1": ("rnn", 0, 0.1),
}
FIVE_GRAM = 141.186  # benchmarks/results/markov.json
Text = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, nargs="+", default=list(SIZES))
    parser.add_argument("--only", choices=RUNS, nargs="+", default=list(RUNS))
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--biases", type=int, choices=(1, 2), default=2, help="of a gate; a GRU keeps two")
    parser.add_argument("--first", type=int, help="epochs at the full rate")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs, for a trial")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True  # cuDNN's recurrences allow it by default
    text = read_parts(data_folder() / "ptb")
    for size in options.size:
        SIZES[size]["first"] = options.first or SIZES[size]["first"]
        for row in side_by_side([enrol(*RUNS[name], size, text, options) for name in options.only]):
            keep(row)


def keep(found: dict[str, Any]) -> None:
    """Replace an earlier row."""
    rows = {place(row): row for row in [*earlier("ptb"), found]}
    ways = list(product(("fp32", "bf16"), (2, 1)))
    order = [
        (size, *run, *way, first) for size in SIZES for run in RUNS.values() for way in ways for first in (4, 6, 7)
    ]
    save_result("ptb", [rows[at] for at in order if at in rows], sizes=SIZES, five_gram=FIVE_GRAM)


def place(row: dict[str, Any]) -> tuple[str, str, int, float, str, int, int]:
    run = row["size"], row["family"], row["seed"], row["rate"]
    return *run, row.get("precision", "fp32"), row.get("biases", 2), row["first"]


def read_parts(folder: Path) -> Text:
    parts = {part: "".join(read(folder / f"ptb.{part}.txt.gz")) for part in ("train", "valid", "test")}
    tokenizer = Tokenizer.train("space", [parts["train"]])
    assert tokenizer.vocab_size == 10_000, tokenizer.vocab_size
    return {part: tokenizer.encode(text).astype(np.uint16) for part, text in parts.items()}


def enrol(
    family: str, seed: int, rate: float, size: str, text: Text, options: Any
) -> tuple[TrainingState, TrainingPlan, Callable[[], dict[str, Any]]]:
    how = SIZES[size]
    torch.manual_seed(seed)
    model = LanguageModel(replace(zaremba(size), family=family)).to(options.device)
    biases = 2 if family == "gru" else options.biases
    if biases == 1:
        keep_one_bias(model)
    streams = Streams(text["train"], BATCH, how["steps"])
    schedule = {"schedule": "step", "warmup": 0.0, "stages": how["epochs"], "first_stages": how["first"]}
    scaled = {"rate": rate * how["steps"], "clip_norm": CLIP / how["steps"], "decay": how["decay"]}
    optimise = Optimizer("sgd", **scaled, **schedule)
    epoch = -(-streams.predicted // (BATCH * how["steps"]))  # updates
    budget = TrainingBudget(tokens=int(options.share * how["epochs"] * streams.predicted))
    plan = TrainingPlan(budget, optimise, evaluate_every=epoch, save_every=epoch, keep=1, precision=options.precision)
    state = TrainingState(model, streams, optimise.build(model))
    row = {"family": family, "size": size, "seed": seed, "rate": rate, "parameters": parts_of(model.config).total}
    row |= {
        "first": how["first"],
        "decay": how["decay"],
        "precision": options.precision,
        "biases": biases,
        "commit": COMMIT,
    }
    return state, plan, partial(one_run, state, plan, text, row)


def keep_one_bias(model: LanguageModel) -> None:
    """Leave one bias to each gate: two are updated twice as fast, and count twice in the clipped norm."""
    for layer in model.modules():
        if isinstance(layer, Recurrence) and layer.bias_hh is not None:
            nn.init.zeros_(layer.bias_hh).requires_grad_(False)


def one_run(state: TrainingState, plan: TrainingPlan, text: Text, row: dict[str, Any]) -> dict[str, Any]:
    begun, ends = time.perf_counter(), parts_side_by_side(len(text["valid"]))
    validate = partial(validation_scores, ids=text["valid"], steps=PIECE, ends=ends)
    with tempfile.TemporaryDirectory() as folder:
        try:
            train(state, plan, validate, Path(folder), partial(tell, row))
        except Diverged as error:
            print(row, error, flush=True)
            return row | {"diverged": True, "valid_perplexity": None, "test_perplexity": None}
        load_checkpoint(Path(folder) / f"step-{state.progress.best_step:08d}", state.model)
    for part in ("valid", "test"):
        row |= {f"{part}_perplexity": score_carried(state.model, text[part], PIECE).perplexity}
    row |= {"epoch": state.progress.best_step / plan.evaluate_every, "seconds": time.perf_counter() - begun}
    row |= {"tokens_per_second": state.progress.tokens / state.progress.seconds}
    print(row, flush=True)
    return row


def tell(row: dict[str, Any], seen: dict[str, Any]) -> None:
    """Print the progress of a run: it is then known even if the run is interrupted."""
    if "valid_loss" in seen:
        print(*place(row), seen, time.strftime("%X"), flush=True)


if __name__ == "__main__":
    main()
