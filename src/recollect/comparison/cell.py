"""The process of one cell: it trains a run or resumes it, measures the result, and writes it down.

    python -m recollect.comparison.cell FOLDER NAME [costs]

It ends when the process that started it does: then its standard input is closed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from recollect.comparison.costs import measure_costs
from recollect.comparison.entrants import cell_config
from recollect.comparison.items import items_of
from recollect.comparison.plan import read_plan
from recollect.core.machine import choose_device, describe, forget_peak, peak_memory
from recollect.core.serialize import FileError, write_file
from recollect.core.types import JsonMapping, JsonObject
from recollect.models.parameters import count_apart
from recollect.runs.log import figure_of
from recollect.runs.run import Run
from recollect.runs.train import begin, resume
from recollect.training.state import Diverged

GLANCE = 256  # symbols or examples that are measured to learn the names of the figures
PATIENT = 10.0  # seconds in which a process that is being killed lets go of the folder


def main(words: list[str]) -> int:
    """Run a cell, or measure what its model costs; return the exit code."""
    folder, name = Path(words[0]), words[1]
    watch_parent()
    plan = read_plan(folder)
    plan = replace(plan, device=plan.device.partition(":")[0])  # a GPU was chosen by the environment
    told = json.loads((folder / "cells" / f"{name}.told.json").read_text(encoding="utf-8"))
    run = Run(folder / "runs" / name, plan.device)
    run.notice = lambda text: None
    if words[2:] == ["costs"]:  # what is raised loses the costs alone, not the cell, which was measured before
        write(folder / "cells" / f"{name}.costs.json", measure_costs(run))
        return 0
    try:
        config = cell_config(plan, told["model"], told["seed"], told["settings"], told["rate"])
        forget_peak(torch.device("cpu"))
        _train(run, lambda: begin(config, run, lambda row: None))
        write(folder / "cells" / f"{name}.json", measure(run, told))
    except Diverged as error:
        return _lost(folder, name, "diverged", str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return _lost(folder, name, "out of memory", str(error))
    except Exception as error:
        is_full = "allocate" in str(error)
        return _lost(folder, name, "out of memory" if is_full else "failed", f"{type(error).__name__}: {error}")
    return 0


def watch_parent() -> None:
    """End this process as soon as the one that started it is gone.

    The descriptor is read, not `sys.stdin`: a thread that holds its lock aborts the interpreter when it ends.
    """
    descriptor = sys.stdin.fileno()

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        os._exit(3)

    threading.Thread(target=wait, daemon=True).start()


def write(path: Path, result: JsonMapping) -> None:
    """Write a result, whole or not at all."""
    write_file(path, json.dumps(result, ensure_ascii=False).encode() + b"\n")


def _lost(folder: Path, name: str, status: str, problem: str) -> int:
    """Write down why a cell was lost."""
    write(folder / "cells" / f"{name}.json", {"status": status, "problem": problem.splitlines()[0] if problem else ""})
    return 1


def _train(run: Run, start: Callable[[], object]) -> None:
    """Train a run from its beginning, or from where it stopped; a folder without a config holds nothing yet."""
    limit = time.monotonic() + PATIENT
    while True:
        try:
            if (run.folder / "config.json").is_file():
                resume(run, lambda row: None, lambda text: None)
            else:
                shutil.rmtree(run.folder, ignore_errors=True)
                start()
            return
        except FileError as error:
            if "another process" not in str(error) or time.monotonic() > limit:
                raise
            time.sleep(0.05)


def measure(run: Run, told: JsonMapping) -> JsonObject:
    """Return what is measured of a trained run."""
    device = choose_device(run.device)
    peak = peak_memory(device)  # of training: before the test part is read
    task, dataset, model = run.task, run.dataset(), run.model
    items = items_of(task, model, dataset)
    scores = task.measure(model, dataset, "valid", GLANCE)
    about = task.about(dataset, model)
    given, answer = task.sample(model, dataset)
    parameters = count_apart(model)
    measure = scores.measures[scores.decisive]
    found: JsonObject = {"status": "done", "problem": "", **told, "peak_bytes": peak}
    found |= {"measure": measure.title, "definition": measure.definition, "lower_is_better": scores.lower_is_better}
    found |= {"numerators": list(items.numerators), "denominators": list(items.denominators), "power": items.power}
    found |= {"by_position": list(items.by_position), "value": items.value}
    found |= {"parameters": parameters.total, "body_parameters": parameters.body}
    found |= {"epoch": task.batches(dataset, model, 0).predicted} if parameters.total else {}
    found |= {"memory_bytes": {str(read): count for read, count in about.memory.items()}}
    found |= {"sample": [given, answer], "machine": describe(device), **of_log(run.metrics())}
    return found


def of_log(rows: list[JsonObject]) -> JsonObject:
    """Return what a run's log tells: the curve of its evaluations, its speed, and the rows that an audit needs."""
    spent = {"step": 0, "tokens": 0, "seconds": 0.0}
    curve = []
    for row in rows:
        if "tokens" in row:
            spent = {name: row[name] for name in spent}
            continue
        spent["seconds"] = row.get("seconds", spent["seconds"])  # of counting
        if (name := figure_of(row)) is not None:
            curve.append([row["step"], spent["tokens"], spent["seconds"], row[name]])
    speed = spent["tokens"] / spent["seconds"] if spent["seconds"] and spent["tokens"] else None
    return {"curve": curve, "updates": spent["step"], **spent, "speed": speed}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
