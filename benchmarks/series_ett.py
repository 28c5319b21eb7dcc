"""ETTh1 and ETTh2: the line and the baselines, every horizon and look-back, all test windows.

    python benchmarks/series_ett.py choose|table|bypass [--cpu N] [--gpu N] [--only TEXT] [--seconds S]

choose trains the candidate settings of one recurrent and one attention model on ETTh1 (96 hours ahead, look-back 336)
and measures them on the validation part alone; the test part is not read. table takes the best of each for its group.
bypass is the table of the models of steps with a linear map of the window beside them. Cells run side by side, in
processes of one thread each and in processes that share a GPU, and each is saved as it ends; rows that are not run
again are kept. After S seconds no further cell is started. Reads ett/ of the folder that RECOLLECT_DATA names; writes
benchmarks/results/series-choice.json, series-ett.json and series-bypass.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch

import recollect as rc
from common import data_folder, earlier, save_result
from recollect.data.series.series_data import SeriesData, load_series
from recollect.data.series.series_table import read_series
from recollect.evaluation.linear_forecasts import ROWS, fitted
from recollect.evaluation.rolling_origin import predictor, roll
from recollect.models.forecast_config import STEPS

Row = dict[str, Any]

SPLIT = "8640,2880,2880"  # 12, 4 and 4 months of 30 days
PUBLISHED: Row = {  # by the authors of LTSF-Linear: batch 32, Adam at 0.005 halved every epoch, patience 3
    "batch_size": 32,
    "rate": 0.005,
    "schedule": "step",
    "stages": 10,
    "first_stages": 1,
    "decay": 0.5,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "patience": 3,
    "budget": "10epochs",
}
SHARED: Row = {  # of every candidate: each channel alone, as one instance
    "batch_size": 128,
    "weight_decay": 0.01,
    "normalise": "instance",
    "head": "all",
    "dropout": 0.3,
    "average": 0.99,
    "patience": 3,
    "budget": "10epochs",
}
BYPASS: Row = SHARED | {"bypass": "linear", "segment": 24, "width": 32, "rate": 0.002}  # a linear map beside the model
GROUPS = {"gru": ("gru", "lstm", "rnn"), "transformer": ("transformer", "linear-attention", "ttt-linear")}
GRID: dict[str, list[Any]] = {
    "bypass": ["linear", "none"],
    "segment": [24, 12],
    "width": [32, 64],
    "rate": [0.002, 0.0005],
}
WINDOWS = 8209  # of the training part, at horizon 96 and look-back 336: about as many at the others
HORIZONS, LOOKBACKS = (96, 192, 336, 720), (336, 96)
SHOWN = ("key", "valid_mse", "mse", "mae", "coverage", "minutes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--cpu", type=int, default=1, help="Processes on cores.")
    parser.add_argument("--gpu", type=int, default=0, help="Processes on the GPU.")
    parser.add_argument("--only", default="", help="Only cells whose name contains this.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Start no cell later.")
    options = parser.parse_args()
    name, cells_of = PARTS[options.part]
    cells = [cell for cell in cells_of() if options.only in cell["key"]]
    jobs = {"cpu": options.cpu, "cuda": options.gpu}
    for row in side_by_side(cells, jobs, options.seconds):
        print(*(f"{row[k]:.4f}" if isinstance(row[k], float) else row[k] for k in SHOWN if k in row), flush=True)
        kept = [old for old in earlier(name) if old["key"] != row["key"]]
        save_result(name, [*kept, row], split=SPLIT, published=PUBLISHED, shared=SHARED, jobs=jobs)
    return 0


# ---- cells --------------------------------------------------------------------------------------------


def candidates() -> Iterator[Row]:
    """Yield the candidate settings of each group's first model."""
    for values in itertools.product(*GRID.values()):
        for family in GROUPS:
            settings = dict(zip(GRID, values, strict=True))
            key = " ".join([family, *(f"{k}={v}" for k, v in settings.items())])
            yield {"key": key, "data": "ETTh1", "horizon": 96, "lookback": 336, "model": family, "settings": settings}


def table() -> Iterator[Row]:
    """Yield every cell of the table, long ones first, so that no core waits for one at the end."""
    chosen = {family: choice(family) for family in GROUPS}
    for horizon, lookback, name in itertools.product(reversed(HORIZONS), LOOKBACKS, ("ETTh1", "ETTh2")):
        shape = {"data": name, "horizon": horizon, "lookback": lookback}
        cells = [("trained", family, chosen[first]) for first, group in GROUPS.items() for family in group]
        cells += [("trained", family, PUBLISHED) for family in ("dlinear", "nlinear")]
        cells += [("closed", family, {}) for family in ROWS]
        for fit, family, settings in cells:
            key = f"{name} {horizon} {lookback} {family} {fit}"
            yield {"key": key, **shape, "model": family, "fit": fit, "settings": settings}


def bypassed() -> Iterator[Row]:
    """Yield the cells of every model of steps beside a linear map."""
    families = [family for group in GROUPS.values() for family in group]
    for horizon, lookback, name in itertools.product(reversed(HORIZONS), LOOKBACKS, ("ETTh1", "ETTh2")):
        for family in families:
            key = f"{name} {horizon} {lookback} {family} bypass"
            shape = {"data": name, "horizon": horizon, "lookback": lookback}
            yield {"key": key, **shape, "model": family, "fit": "bypass", "settings": BYPASS}


def choice(family: str) -> Row:
    """Return the settings with the lowest error on the validation part, of those that were tried."""
    rows = [row for row in earlier("series-choice") if row["model"] == family]
    if not rows:
        print(f"no settings were chosen for {family}; run first: python benchmarks/series_ett.py choose")
        sys.exit(2)
    best: Row = min(rows, key=lambda row: row["valid_mse"])["settings"]
    return SHARED | best


PARTS = {
    "choose": ("series-choice", candidates),
    "table": ("series-ett", table),
    "bypass": ("series-bypass", bypassed),
}


# ---- running ------------------------------------------------------------------------------------------


def side_by_side(cells: list[Row], jobs: dict[str, int], seconds: float) -> Iterator[Row]:
    """Yield the row of each cell as it ends. The GPU takes models of steps first, the cores the others."""
    deadline = time.time() + seconds
    steps = deque(cell for cell in cells if cell["model"] in STEPS)
    others = deque(cell for cell in cells if cell["model"] not in STEPS)
    found: SimpleQueue[Row | None] = SimpleQueue()

    def serve(device: str) -> None:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            while time.time() < deadline:
                cell = take(steps, others) if device == "cuda" else take(others, steps)
                if cell is None:
                    break
                try:
                    found.put(pool.submit(run, cell | {"device": device}).result())
                except Exception as error:  # the other cells go on
                    print(f"{cell['key']}: {error!r}", file=sys.stderr, flush=True)
        found.put(None)

    workers = [Thread(target=serve, args=(device,)) for device, count in jobs.items() for _ in range(count)]
    for worker in workers:
        worker.start()
    for _ in workers:
        yield from iter(found.get, None)


def take(own: deque[Row], others: deque[Row]) -> Row | None:
    """Return the next cell: the first of one's own, else the last of the others'; None where both are empty."""
    for next_of in (own.popleft, others.pop):
        with contextlib.suppress(IndexError):  # empty
            return next_of()
    return None


def run(cell: Row) -> Row:
    """Return a cell's row."""
    return cell | (closed(cell) if cell.get("fit") == "closed" else learned(cell))


def source(cell: Row) -> str:
    return str(data_folder() / "ett" / f"{cell['data']}.csv.gz")


def closed(cell: Row) -> Row:
    data = load_series(read_series(source(cell)), lookback=cell["lookback"], horizon=cell["horizon"], split=SPLIT)
    begun = time.perf_counter()
    model = fitted(cell["model"], data)
    return measured(model, data, time.perf_counter() - begun)


def learned(cell: Row) -> Row:
    """Train a cell's model; a candidate, which has no `fit`, is measured on the validation part alone."""
    shape = {name: cell[name] for name in ("horizon", "lookback", "device")}
    settings = cell["settings"] if "fit" in cell else SHARED | cell["settings"]
    settings |= {"evaluate_every": -(-WINDOWS // settings["batch_size"])}  # once an epoch
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        made = rc.train(source(cell), task="forecast", model=cell["model"], out=out, split=SPLIT, **shape, **settings)
        logged = made.metrics()
        seconds = [row["seconds"] for row in logged if "seconds" in row][-1]
        best = min(row["valid_mse"] for row in logged if "valid_mse" in row)
        if "fit" not in cell:
            return {"valid_mse": best, "minutes": seconds / 60}
        return {"valid_mse": best, **measured(made.model, made.dataset(), seconds)}


def measured(model: rc.Forecaster, data: SeriesData, seconds: float) -> Row:
    count = sum(p.numel() for p in model.parameters())
    facts = {"minutes": seconds / 60, "parameters": count, "windows": len(data.test)}
    return facts | roll(predictor(model), data, "test")


if __name__ == "__main__":
    sys.exit(main())
