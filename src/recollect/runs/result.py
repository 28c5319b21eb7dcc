"""The result of a run, the weights of its best step, and what a resumed training has found since."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from recollect.core.serialize import FileError, save_weights
from recollect.training.checkpoint import PREFIX, read_state

STEP = "step"  # header entry: the step that the weights are of


def save_result(model: nn.Module, path: Path, step: int | None) -> None:
    """Write a run's result, with the step that its weights are of."""
    save_weights(model, path, {} if step is None else {STEP: str(step)})


def later_best(checkpoints: Path, result: Path) -> Path | None:
    """Return the checkpoint of a step that was found better after the result was written; None where there is none.

    So it is while a finished run is trained further, and after that training was killed.
    """
    written = _step_of(result)
    best = _best_step(checkpoints)
    if written is None or best is None or best <= written:
        return None
    found = checkpoints / f"{PREFIX}{best:08d}"
    try:
        read_state(found)
    except FileError:  # damaged, or just replaced
        return None
    return found


def _step_of(result: Path) -> int | None:
    """Return the step of a result; None of one without: it counts, or is of an earlier version, or is damaged."""
    try:
        with safe_open(result, framework="pt") as file:
            return int((file.metadata() or {})[STEP])
    except (SafetensorError, OSError, KeyError, ValueError):
        return None


def _best_step(checkpoints: Path) -> int | None:
    """Return the best step that the newest checkpoint knows of; its checksums are not computed, which takes long."""
    newest = max(checkpoints.glob(f"{PREFIX}????????"), default=None)
    try:
        state = {} if newest is None else json.loads((newest / "state.json").read_text(encoding="utf-8"))
        best: int | None = state["progress"]["best_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return best
