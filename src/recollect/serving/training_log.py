"""The training of a run as the page shows it: the curve of its scores, its samples, and whether it is running now."""

from __future__ import annotations

import fcntl
import math
from pathlib import Path

from recollect.core.types import JsonObject
from recollect.runs.run import Run

MOST_POINTS = 200  # of a curve, and samples


def training_of(run: Run | None) -> JsonObject:
    """Return the curve [[seconds, score]], the samples, and whether another process is training in the folder."""
    if run is None:
        return {"curve": [], "samples": [], "running": False}
    rows = run.metrics()
    seconds = 0.0
    curve: list[list[float]] = []
    scores: dict[int, float] = {}
    for row in rows:
        seconds = row.get("seconds", seconds)
        score = next((row[name] for name in row if name.startswith("valid_")), None)
        if score is not None and math.isfinite(score):
            curve.append([seconds, score])
            scores[row["step"]] = score
    samples = [{**row, "loss": scores.get(row["step"])} for row in run.samples() if {"prompt", "text"} <= row.keys()]
    return {"curve": thinned(curve), "samples": thinned(samples), "running": is_training(run.folder)}


def thinned(rows: list[object] | list[JsonObject] | list[list[float]]) -> list[object]:
    """Return at most `MOST_POINTS` rows, evenly spaced, the first and the last among them."""
    if len(rows) <= MOST_POINTS:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def is_training(folder: Path) -> bool:
    """Return whether a process holds the folder's lock; the lock is left as it is."""
    try:
        with (folder / ".lock").open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        pass
    return False
