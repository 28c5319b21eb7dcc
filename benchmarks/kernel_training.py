"""Training with our recurrent kernels beside training without them: tokens per second, end to end, and the loss.

    RECOLLECT_DATA=FOLDER python benchmarks/kernel_training.py [--updates N] [--rounds N]
    RECOLLECT_DATA=FOLDER python benchmarks/kernel_training.py --whole "kernels" "plain, tf32, captured" --seeds 0 1 2

The medium LSTM of Zaremba et al. on Penn Treebank (2 × 650, batch 20, 35 steps) and the LSTMs of tinyshakespeare in
characters.py, as ptb.py and characters.py train them: batches, dropout, clipping and the optimiser are all in the time.
Each variant has its own model of the same seed; variants are interleaved, and all read the same batches. The plain path
is cuDNN's, without and with its update captured as a CUDA graph, in bf16 as ours and in tf32. With `--whole` the named
variants train to the end, one after the other, with every seed, and are evaluated on the held-out part; Penn Treebank's
schedule is shortened from 39 epochs to 12. The trainings on the plain path share the GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
import torch

import characters
import ptb
from common import COMMIT, data_folder, earlier, save_result, side_by_side
from recollect.accel.cuda.recurrent import persistent
from recollect.core.dispatch import without_accel
from recollect.training.loop import update
from recollect.training.state import TrainingPlan, TrainingState

WAYS: dict[str, dict[str, Any]] = {
    "kernels": {"precision": "bf16", "capture": True},
    "kernels, tf32": {"precision": "fp32", "capture": True},
    "plain": {"precision": "bf16", "capture": False},
    "plain, captured": {"precision": "bf16", "capture": True},
    "plain, tf32, captured": {"precision": "fp32", "capture": True},
}
DEVICE = "cuda"
SHARE = 0.1  # of the schedule: the warm-up is over, the rate is high
OPTIONS = Namespace(device=DEVICE, share=1.0, precision="bf16", biases=2)
PTB_SHARE = 12 / 39  # of the epochs of a whole training


@dataclass
class Learner:
    """One variant of training."""

    state: TrainingState
    plan: TrainingPlan
    source: Iterator[Any]
    way: str

    def go(self, updates: int) -> tuple[float, float]:
        """Train for some updates; return seconds and the mean loss."""
        begun = time.perf_counter()
        with path_of(self.way):
            losses = [update(self.state, self.source, self.plan, SHARE)["train_loss"] for _ in range(updates)]
        torch.cuda.synchronize()
        return time.perf_counter() - begun, statistics.mean(losses)


def path_of(way: str) -> AbstractContextManager[None]:
    return nullcontext() if way.startswith("kernels") else without_accel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--whole", nargs="+", choices=WAYS, default=[], metavar="WAY")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    for way in options.whole:
        train_whole(way, options.seeds)
    if not options.whole:
        interleave_variants(options)


def interleave_variants(options: Namespace) -> None:
    rows = []
    for name, tokens, learners in settings():
        rows.append({"setting": name, **compare(learners, tokens, options)})
        print(rows[-1], flush=True)
        save_result("kernel-training", rows, updates=options.updates, rounds=options.rounds)


def settings() -> Iterator[tuple[str, int, dict[str, Learner]]]:
    text = ptb.read_parts(data_folder() / "ptb")
    how = ptb.SIZES["medium"]
    enrolled = {way: ptb.enrol("lstm", 0, 1.0, "medium", text, OPTIONS)[:2] for way in WAYS}
    yield "PTB, medium LSTM", ptb.BATCH * how["steps"], begin(enrolled)
    parts, symbols = characters.read_parts()
    for name in ("lstm", "lstm, 2 layers, dropout .5, 128 steps"):
        setting = characters.SETTINGS[name]
        enrolled = {way: characters.enrol(name, setting, parts, symbols, OPTIONS)[:2] for way in WAYS}
        yield f"tinyshakespeare, {name}", setting.batch * setting.steps, begin(enrolled)


def begin(enrolled: dict[str, tuple[TrainingState, TrainingPlan]]) -> dict[str, Learner]:
    learners = {}
    for way, (state, plan) in enrolled.items():
        learners[way] = Learner(state, replace(plan, **WAYS[way]), iter(state.batches), way)
    return learners


def compare(learners: dict[str, Learner], tokens: int, options: Namespace) -> dict[str, Any]:
    for learner in learners.values():
        learner.go(4)  # captures
    seen: dict[str, list[tuple[float, float]]] = {way: [] for way in learners}
    for _ in range(options.rounds):
        for way, learner in learners.items():
            seen[way].append(learner.go(options.updates))
    persistent.check()
    seconds = {way: np.array([s for s, _ in found]) for way, found in seen.items()}
    ours = float(np.median(seconds["kernels"]))
    return {
        "tokens_per_second": {way: tokens * options.updates / float(np.median(s)) for way, s in seconds.items()},
        "ratio": {way: float(np.median(s)) / ours for way, s in seconds.items() if way != "kernels"},
        "spread": {way: float((s.max() - s.min()) / np.median(s)) for way, s in seconds.items()},
        "last_loss": {way: found[-1][1] for way, found in seen.items()},
    }


def train_whole(way: str, seeds: list[int]) -> None:
    """Train one variant to the end; rows of other variants and seeds are kept."""
    learners = (learner for seed in seeds for learner in whole_trainings(way, seed))
    at_once = (
        1 if way.startswith("kernels") else None
    )  # persistent kernels of several could each occupy a part of the GPU
    place = itemgetter("setting", "way", "seed")
    while some := list(islice(learners, at_once)):
        with path_of(way):
            for row in side_by_side(some):
                kept = [old for old in earlier("kernel-losses") if place(old) != place(row)]
                save_result("kernel-losses", sorted([*kept, row], key=place))


def whole_trainings(way: str, seed: int) -> Iterator[tuple[TrainingState, TrainingPlan, Callable[[], dict[str, Any]]]]:
    precision = WAYS[way]["precision"]
    setting = replace(characters.SETTINGS["lstm"], precision=precision, seed=seed)
    state, plan, job = characters.enrol("lstm", setting, *characters.read_parts(), OPTIONS)
    yield state, plan, partial(train_one, "tinyshakespeare, lstm", way, seed, job)
    options = Namespace(**vars(OPTIONS) | {"share": PTB_SHARE, "precision": precision})
    state, plan, job = ptb.enrol("lstm", seed, 1.0, "medium", ptb.read_parts(data_folder() / "ptb"), options)
    yield state, plan, partial(train_one, "PTB, medium LSTM", way, seed, job)


def train_one(setting: str, way: str, seed: int, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Train in this thread, with the path set in it; return the row of the result."""
    with path_of(way):
        found = job()
    loss = found["whole_set_loss"] if "whole_set_loss" in found else math.log(found["valid_perplexity"])
    return {"setting": setting, "way": way, "seed": seed, "loss": loss, "commit": COMMIT}


if __name__ == "__main__":
    main()
