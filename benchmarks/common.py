"""What the benchmarks share: interleaved timing, and results with their origin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.bench.timing import interleave as interleave, summary as summary  # where the benchmarks look for them
from recollect.core.machine import record
from recollect.training.loop import update
from recollect.training.state import TrainingPlan, TrainingState

ROOT = Path(__file__).resolve().parent.parent
SMOKE = os.environ.get("RECOLLECT_SMOKE") == "1"  # a few updates a training: does a benchmark run to its end?
RESULTS = Path(tempfile.gettempdir()) / "recollect-smoke" if SMOKE else ROOT / "benchmarks" / "results"
GENERATED = ["benchmarks/results", "docs/*.svg", "docs/figures*.md", "docs/speed*.md", "docs/scale*.md", "README*.md"]


def save_result(name: str, rows: list[dict[str, Any]], **extra: Any) -> Path:
    """Write benchmarks/results/NAME.json, with machine, command and commit; a copy to the folder that OUT names."""
    result = record(name, rows, command(), COMMIT, **extra)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    beside = path.with_suffix(".json.new")  # replaced atomically: no reader gets half a file
    beside.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)
    out = os.environ.get("OUT")  # of a machine that is given back: what is in there is returned
    if out is not None and Path(out).is_dir():
        shutil.copy(path, out)
    return path


def budget_of(words: str) -> str:
    """Return the budget of a training; of one that is only tried, two updates."""
    return "2steps" if SMOKE else words


def earlier(name: str) -> list[dict[str, Any]]:
    """Return the rows of benchmarks/results/NAME.json, none where there is no such file."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def command() -> str:
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def commit() -> str:
    """Return the name of the commit; "-dirty" where anything but generated files differs from it.

    RECOLLECT_COMMIT names it where the files were copied to a machine without their history.
    """
    if "RECOLLECT_COMMIT" in os.environ:
        return os.environ["RECOLLECT_COMMIT"]
    head = git("rev-parse", "--short", "HEAD")
    if head is None:
        return "none"
    changed = git("status", "--porcelain", "--", ".", *[f":(exclude){path}" for path in GENERATED])
    return f"{head}-dirty" if changed else head


def git(*args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def data_folder() -> Path:
    """Return the folder of texts that RECOLLECT_DATA names; exit with a message where it is not set."""
    folder = os.environ.get("RECOLLECT_DATA")
    if folder is None or not Path(folder).is_dir():
        print(f"RECOLLECT_DATA: got {folder}, expected the folder that holds the texts. Set it and run {command()}.")
        sys.exit(2)
    return Path(folder)


def side_by_side(learners: list[tuple[TrainingState, TrainingPlan, Callable[[], Any]]]) -> Iterator[Any]:
    """Run the learners' jobs concurrently, on a GPU each in its own stream, so that small kernels share it.

    Two updates of each are done first, sequentially: a graph cannot be captured while others draw random numbers.
    Yields each job's result as soon as it is done.
    """
    streams = [torch.cuda.Stream() if torch.cuda.is_available() else None for _ in learners]
    for (state, plan, _), stream in zip(learners, streams, strict=True):
        with torch.cuda.stream(stream):
            for _ in range(2):
                update(state, iter(state.batches), plan, 0.0)

    def work(job: Callable[[], Any], stream: torch.cuda.Stream | None) -> Any:
        with torch.cuda.stream(stream):
            return job()

    with ThreadPoolExecutor(len(learners)) as pool:
        running = [pool.submit(work, job, stream) for (_, _, job), stream in zip(learners, streams, strict=True)]
        for done in as_completed(running):
            yield done.result()


def parts_side_by_side(count: int, rows: int = 32) -> NDArray[np.int64]:
    """Return the ends of `rows` parts of a text: as rows of one batch they are read many times faster than one row."""
    return np.linspace(0, count, rows + 1).astype(np.int64)[1:]


COMMIT = commit()  # read at import: files may change while a benchmark runs, the imported modules do not
