"""What to expect from many GPUs: measured times of an update on one, for the model of `recollect.runs.scaling`.

    python benchmarks/scale.py
    python benchmarks/scale.py --check [--rounds 5]

Two results. Updates on one H200: of kernel-training.json (training by our kernels), of characters.json (a Transformer,
four trainings at once on the GPU), and one of GPT-2's size that was timed apart from these benchmarks (32 × 1024
tokens, bf16, model and loss compiled, torch 2.11). With --check, of the model where that needs no GPUs: two processes
with one core each, connected by gloo, as copies and sharded, beside one process that computes its rows and sends
nothing. The rate of the link is measured in the same run. Needs two idle cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from common import earlier, save_result
from recollect.data.text.batches import Windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import parts_of
from recollect.runs.scaling import Links, update_seconds
from recollect.training.loop import update
from recollect.training.optimizer import Optimizer
from recollect.training.sharding import shard
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState
from recollect.training.workers import ALONE, Alone, join

CHECKED = LanguageConfig("transformer", 256, width=256, layers=4)
ROWS, STEPS = 16, 64  # of the batch that two processes share
UPDATES = 3  # timed at once


@dataclass(frozen=True)
class Workload:
    """One update on one GPU."""

    name: str
    parameters: int
    tokens: int
    seconds: float
    origin: str
    rows: int
    is_captured: bool  # as a CUDA graph


def workloads() -> list[Workload]:
    """Return the measured updates, those with little to send for their computing last."""
    speeds = {row["setting"]: row["tokens_per_second"]["kernels"] for row in earlier("kernel-training")}
    found = {row["name"]: row for row in earlier("characters")}
    attention, recurrent = found["nanoGPT's, seed 0"], found["lstm"]
    medium = parts_of(LanguageConfig("lstm", 10_000, width=650, layers=2)).total
    shared = attention["tokens_per_second"]
    kernels = speeds["tinyshakespeare, lstm"]
    return [
        _timed("LSTM, PTB, medium", medium, (20, 35), speeds["PTB, medium LSTM"], "kernel-training"),
        _timed("LSTM, tinyshakespeare", recurrent["parameters"], (64, 256), kernels, "kernel-training"),
        _timed("Transformer, tinyshakespeare", attention["parameters"], (64, 256), shared, "characters"),
        Workload("GPT-2, 124M", 124_439_808, 32 * 1024, 0.0608, "apart", 32, is_captured=False),
    ]


def _timed(name: str, parameters: int, shape: tuple[int, int], speed: float, origin: str) -> Workload:
    tokens = shape[0] * shape[1]
    return Workload(name, parameters, tokens, tokens / speed, origin, shape[0], is_captured=True)


# ---- the check: two processes on this machine ------------------------------------------------------------


def learner(workers: Alone, rows: int, *, is_sharded: bool = False) -> tuple[TrainingState, TrainingPlan]:
    torch.manual_seed(0)
    model = LanguageModel(CHECKED)
    network = shard(model, workers.size) if is_sharded else None
    ids = np.random.default_rng(0).integers(0, CHECKED.vocab_size, 100_000)
    state = TrainingState(
        model,
        Windows(ids, rows, STEPS, seed=0),
        Optimizer().build(model),
        workers=workers,
        network=network,
        is_sharded=is_sharded,
    )
    return state, TrainingPlan(TrainingBudget(steps=1000))


def timer(state: TrainingState, plan: TrainingPlan) -> Callable[[], float]:
    source = iter(state.batches)
    update(state, source, plan, 0.1)

    def seconds() -> float:
        begun = time.perf_counter()
        for _ in range(UPDATES):
            update(state, source, plan, 0.1)
        return (time.perf_counter() - begun) / UPDATES

    return seconds


def gathering(size: int) -> Callable[[], float]:
    own = torch.zeros(size // 8)
    every = [torch.empty_like(own) for _ in range(2)]

    def seconds() -> float:
        begun = time.perf_counter()
        dist.all_gather(every, own)
        return time.perf_counter() - begun

    return seconds


def take_part(rounds: int, path: Path) -> None:
    """Time the variants in turn in each process; the first writes the medians."""
    workers = join(torch.device("cpu"), 0)
    size = 4 * parts_of(CHECKED).total // 8 * 8
    timers = {
        "computing": timer(*learner(ALONE, ROWS // 2)),
        "copies": timer(*learner(workers, ROWS)),
        "sharded": timer(*learner(workers, ROWS, is_sharded=True)),
        "gathering": gathering(size),
    }
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, seconds in timers.items():
            workers.wait()
            found[name].append(seconds())
    if workers.is_first:
        facts = {name: statistics.median(times) for name, times in found.items()}
        path.write_text(json.dumps(facts | {"bytes": size}), encoding="utf-8")
    workers.wait()


def check(rounds: int) -> dict[str, Any]:
    """Return the measured seconds of two processes beside those that the model gives for the measured link."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.json"
        words = ["--standalone", "--nproc-per-node", "2", __file__, "--rounds", str(rounds), "--into", str(path)]
        subprocess.run([sys.executable, "-m", "torch.distributed.run", *words], check=True)
        found = json.loads(path.read_text(encoding="utf-8"))
    rate = found["bytes"] / 2 / found["gathering"]
    links = Links("gloo", rate / 0.8, rate)
    for name in ("copies", "sharded"):
        given = update_seconds(found["computing"], found["bytes"], 2, links, is_sharded=name == "sharded")
        found[f"{name}_expected"] = given
    return found | {"parameters": parts_of(CHECKED).total, "rounds": rounds, "rate": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.into is not None:
        take_part(options.rounds, options.into)
        return
    if options.check:
        save_result("scale-check", [check(options.rounds)])
    else:
        save_result("scale", [asdict(one) for one in workloads()])


if __name__ == "__main__":
    main()
