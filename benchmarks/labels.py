"""Labels of texts and tags of words on real data, from scratch: the line beside baselines without context.

    RECOLLECT_DATA=FOLDER python benchmarks/labels.py sst2,snips-intents --tries 24 --until 240 --seeds 5 --jobs 16
    RECOLLECT_DATA=FOLDER python benchmarks/labels.py ud,snips-slots,wnut17 --seeds 5 --limit 350 --jobs 16
    RECOLLECT_DATA=FOLDER python benchmarks/labels.py chnsenticorp,spoken-digits --seeds 5 --limit 400 --jobs 16
    RECOLLECT_DATA=FOLDER python benchmarks/labels.py digit-strings --seeds 5 --limit 350 --jobs 16

Four calls of ten minutes at most, on 16 cores. FOLDER has 12 MB in sst, snips, ud_english_ewt, wnut17, chnsenticorp
and spoken_digits. Rows are saved after each training, with a copy in the folder that OUT names; after `--limit` seconds
none is begun. What is left out or fails is told, and the others go on. RECOLLECT_SMOKE=1 makes two updates a training.

Every model is trained through `rc.train`; its best weights on the validation part are measured once on the test part.
With `--tries N` its settings are those of N variants that are best on the validation part: all are trained with one
seed, the best KEPT of them with two more, and the one with the best mean is trained anew for the table, with `--seeds`
seeds where it is a headline row, else with one. Runs are independent, `--jobs` of them at a time.

ChnSentiCorp's own test part has no labels: the development texts that do not also occur in its training part are the
test, a tenth of the training part validates.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import recollect as rc
from common import budget_of, data_folder, earlier, save_result
from label_data import CONTEXT_FREE, DATA, LETTERS, Settings, places

KEPT = 4  # variants that are tried with more than one seed
AGAIN = (1, 2)  # those seeds


@dataclass(frozen=True)
class Cell:
    """One training: a data set, a model, the number of its variant, and a seed."""

    data: str
    model: str
    variant: int
    settings: Settings
    seed: int
    device: str
    is_measured: bool = False  # on the test part

    @property
    def row(self) -> tuple[str, str]:
        """The row of the table that it belongs to."""
        return self.data, self.model


class Runner:
    """Trains cells side by side, each in a process with one thread."""

    def __init__(self, jobs: int, folder: Path) -> None:
        self.pool = ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,))
        self.folder = folder
        self.home = data_folder()
        self.parts: dict[str, dict[str, str]] = {}

    def run(self, cells: Iterable[Cell], until: float = math.inf) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield each cell with its figures, as soon as it is done; those not begun by `until` are left out."""
        waiting = {}
        for cell in cells:
            if cell.data not in self.parts:
                self.parts[cell.data] = places(cell.data, self.home, self.folder)
            waiting[self.pool.submit(learn, cell, self.parts[cell.data])] = cell
        for done in as_completed(waiting):
            if time.perf_counter() > until:
                for other in waiting:
                    other.cancel()
            cell = waiting[done]
            if done.cancelled():
                print(cell.data, cell.model, f"variant {cell.variant} seed {cell.seed}: left out", flush=True)
                continue
            if done.exception() is not None:
                print(cell.data, cell.model, f"failed: {done.exception()!r}", flush=True)
                continue
            found = done.result()
            figures = " ".join(f"{name} {found[name]:.4f}" for name in ("valid", "value") if name in found)
            print(
                cell.data,
                cell.model,
                f"variant {cell.variant} seed {cell.seed}:",
                figures,
                f"{found['seconds']:.0f} s",
                flush=True,
            )
            yield cell, found


def main() -> None:
    begun = time.perf_counter()
    asked = arguments()
    if "digit-strings" in asked.names:
        import_module("sacrebleu")  # an evaluation needs it: better refused now than after the training
    rows = [
        (name, model)
        for name in asked.names.split(",")
        for model in DATA[name].models
        if not asked.models or model in asked.models.split(",")
    ]
    variants = {row: DATA[row[0]].models[row[1]].variants(row[0], asked.tries) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(asked.jobs, Path(folder))
        chosen = choose(runner, variants, asked)
        cells = []
        for (name, model), number in chosen.items():
            seeds = asked.seeds if DATA[name].models[model].is_headline else 1
            own = variants[name, model][number]
            cells += [Cell(name, model, number, own, seed, asked.device, is_measured=True) for seed in range(seeds)]
        found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        cells.sort(key=lambda cell: cell.seed)  # of all rows first one seed: the time may not suffice for more
        for cell, figures in runner.run(cells, begun + asked.limit):
            found[cell.row].append({"seed": cell.seed, **figures})
            save(cell.row, found[cell.row], chosen[cell.row], len(variants[cell.row]), asked)
        print(f"all done after {time.perf_counter() - begun:.0f} s", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", help=f"of {', '.join(DATA)}, divided by commas")
    parser.add_argument("--models", default="", help="only these, divided by commas")
    parser.add_argument("--seeds", type=int, default=1, help="of the headline rows")
    parser.add_argument("--tries", type=int, default=1, help="variants of the settings")
    parser.add_argument(
        "--until",
        type=float,
        default=math.inf,
        help="seconds after which no variant is begun, 1.4 times as many with more seeds",
    )
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no training is begun")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def choose(
    runner: Runner, variants: dict[tuple[str, str], list[Settings]], asked: argparse.Namespace
) -> dict[tuple[str, str], int]:
    """Return each row's variant with the best mean on the validation part."""
    begun = time.perf_counter()
    figures: dict[tuple[str, str], dict[int, list[float]]] = {row: {0: []} for row in variants}

    def rank(row: tuple[str, str]) -> list[int]:
        mean = {
            number: (len(values), statistics.mean(values or [-math.inf])) for number, values in figures[row].items()
        }
        return sorted(mean, key=lambda number: mean[number], reverse=True)  # those with more seeds come first

    def tried(numbers: dict[tuple[str, str], list[int]], seeds: Iterable[int], seconds: float) -> None:
        cells = [
            Cell(*row, chosen[place], variants[row][chosen[place]], seed, asked.device)
            for place in range(asked.tries)  # of every row, so that all have as many where time runs out
            for row, chosen in numbers.items()
            for seed in seeds
            if place < len(chosen)
        ]
        for cell, found in runner.run(cells, begun + seconds):
            figures[cell.row].setdefault(cell.variant, []).append(found["valid"])

    several = {row: list(range(len(own))) for row, own in variants.items() if len(own) > 1}
    tried(several, (0,), asked.until)
    tried({row: rank(row)[:KEPT] for row in several}, AGAIN, 1.4 * asked.until)
    return {row: rank(row)[0] for row in variants}


def learn(cell: Cell, parts: dict[str, str]) -> dict[str, Any]:
    """Train one model and return its figures on the validation part, and where asked on the test part."""
    data = DATA[cell.data]
    settings = {**data.settings, **cell.settings}
    epochs = data.epochs * settings.pop("epochs", 1)
    if cell.model in CONTEXT_FREE:
        settings = {name: value for name, value in settings.items() if name not in LETTERS}
    given = {name: place for name, place in parts.items() if name != "train"}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = rc.train(
            parts["train"],
            task=data.task,
            model=cell.model,
            budget=budget_of(f"{epochs:g}epochs"),
            out=Path(folder) / "run",
            seed=cell.seed,
            device=cell.device,
            **{"evaluate_every": 200, **given, **settings},
        )
        seconds = time.perf_counter() - begun
        count = sum(p.numel() for p in run.model.parameters())
        found = {
            "valid": best_valid(run),
            "seconds": seconds,
            "parameters": count,
            "settings": settings,
            "epochs": epochs,
        }
        if cell.is_measured:
            scores = run.evaluate()
            row, measure = data.figure or (next(iter(scores.rows)), scores.decisive)
            found |= {"value": scores.rows[row][measure], "measure": measure, "scores": dict(scores.rows[row])}
    return found


def best_valid(run: rc.Run) -> float:
    """Return the best figure on the validation part, with the sign that makes higher better."""
    name = next(name for row in run.metrics() for name in row if name.startswith("valid_"))
    values = [row[name] for row in run.metrics() if name in row]
    return -min(values) if name == "valid_loss" else max(values)


def save(row: tuple[str, str], runs: list[dict[str, Any]], variant: int, tries: int, asked: argparse.Namespace) -> None:
    """Write a row of a data set's table with the seeds there are so far; the others stay as they were."""
    name, model = row
    rows = [other for other in earlier(f"labels-{name}") if other["model"] != model]
    runs.sort(key=lambda run: run["seed"])
    values = [run["value"] for run in runs]
    mean = {key: statistics.mean(run[key] for run in runs) for key in ("value", "valid")}
    rows.append({"model": model, "seeds": len(runs), "values": values, **runs[0], **mean})
    rows[-1] |= {"tries": tries, "variant": variant}
    print(name, model, *(f"{value:.4f}" for value in values), f"mean {mean['value']:.4f}", flush=True)
    rows.sort(key=lambda other: list(DATA[name].models).index(other["model"]))
    save_result(f"labels-{name}", rows, threads=1, jobs=asked.jobs, device=asked.device, epochs=DATA[name].epochs)


if __name__ == "__main__":
    main()
