"""What a trained model costs to use: time for each symbol of the test part, and time and bytes by context.

Measured alone, after all trainings.
"""

from __future__ import annotations

import statistics
import time

from recollect.comparison.contexts import ENOUGH, read_contexts
from recollect.comparison.items import items_of
from recollect.core.types import JsonObject
from recollect.runs.run import Run

TIMES = 3  # readings of the test part, fewer of one that takes long


def measure_costs(run: Run) -> JsonObject:
    """Return seconds per symbol of the test part, and rows of seconds and bytes by context."""
    task, model, dataset = run.task, run.model, run.dataset()
    passed: list[float] = []
    while len(passed) < TIMES and sum(passed) < ENOUGH:
        begun = time.perf_counter()
        items = items_of(task, model, dataset)
        passed.append(time.perf_counter() - begun)
    symbols = max(sum(items.denominators), 1.0)
    return {"read_seconds": statistics.median(passed) / symbols, "contexts": read_contexts(model)}
