"""What a trained model costs to use: time for each symbol, and bytes remembered, against the symbols read before.

Measured alone, after all trainings. A model that reads ids step by step is measured at growing contexts; of the others,
the time of the test part is.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from recollect.comparison.items import items_of
from recollect.core.errors import ContractError
from recollect.core.layer import SequenceLayer
from recollect.core.types import JsonObject
from recollect.runs.run import Run

CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
CHUNK = 1024  # symbols read at once
STEPS = 16  # single steps that are timed at each context
ENOUGH = 8.0  # seconds of reading after which no longer context is tried
TIMES = 3  # readings of the test part


def measure_costs(run: Run) -> JsonObject:
    """Return seconds per symbol and bytes by context, and seconds per symbol of the test part."""
    task, model, dataset = run.task, run.model, run.dataset()
    passed = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        items = items_of(task, model, dataset)
        passed.append(time.perf_counter() - begun)
    symbols = max(sum(items.denominators), 1.0)
    found: JsonObject = {"read_seconds": statistics.median(passed) / symbols}
    return found | (_by_context(model) if _reads_ids(model) else {"contexts": []})


def _reads_ids(model: Any) -> bool:
    """Return whether a model reads ids in chunks from a memory of its own."""
    if not isinstance(model, SequenceLayer) or model.width is not None or not model.streams:
        return False
    try:
        model.initial_memory(1)
    except ContractError:  # it needs a source
        return False
    return hasattr(model, "vocab_size")


@torch.no_grad()
def _by_context(model: Any) -> JsonObject:
    """Return rows of context, seconds of a step and bytes."""
    vocabulary = int(model.vocab_size)
    longest = getattr(getattr(model, "config", None), "max_length", None)  # of a table of positions
    source = torch.Generator().manual_seed(0)
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    ids = torch.randint(vocabulary, (1, CONTEXTS[-1] + STEPS), generator=source).to(device)
    memory, done, rows = model.initial_memory(1), 0, []
    begun = time.perf_counter()
    for context in CONTEXTS:
        if time.perf_counter() - begun > ENOUGH or (longest is not None and context + STEPS > longest):
            break
        while done < context:
            size = min(CHUNK, context - done)
            memory = model(ids[:, done : done + size], memory)[1]
            done += size
        rows.append(
            {"context": context, "seconds": _step_seconds(model, ids[:, context:], memory), "bytes": memory.nbytes}
        )
    return {"contexts": rows}


def _step_seconds(model: Any, ids: torch.Tensor, memory: Any) -> float:
    """Return the median time of a single step, each from the same memory."""
    passed = []
    for step in range(STEPS):
        if ids.is_cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        model(ids[:, step : step + 1], memory)
        if ids.is_cuda:
            torch.cuda.synchronize()
        passed.append(time.perf_counter() - begun)
    return statistics.median(passed)
