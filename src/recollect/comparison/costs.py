"""What a trained model costs to use: time for each symbol, and bytes remembered, against the symbols read before.

Measured alone, after all trainings. A model that reads ids step by step is measured at growing contexts; of the others,
the time of the test part is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from recollect.bench.power_law import LEAST, exponent, upper_half
from recollect.comparison.items import items_of
from recollect.core.errors import ContractError
from recollect.core.layer import SequenceLayer
from recollect.core.types import JsonMapping, JsonObject
from recollect.generation.sampling import stream
from recollect.generation.settings import Settings
from recollect.runs.run import Run

CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
CHUNK = 1024  # symbols read at once
STEPS = 24  # symbols that are generated at each context
FIRST = 4  # of these are not counted
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
    return found | {"contexts": read_contexts(model) if _reads_ids(model) else []}


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
def read_contexts(model: Any, contexts: Sequence[int] = CONTEXTS, patience: float = ENOUGH) -> list[JsonObject]:
    """Return rows of context, seconds of a generated symbol and bytes remembered."""
    longest = getattr(getattr(model, "config", None), "max_length", None)  # of a table of positions
    source = torch.Generator().manual_seed(0)
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    ids = torch.randint(int(model.vocab_size), (1, contexts[-1]), generator=source).to(device)
    memory, done = model.initial_memory(1), 0
    rows: list[JsonObject] = []
    begun = time.perf_counter()
    for context in contexts:
        if time.perf_counter() - begun > patience or (longest is not None and context + STEPS > longest):
            break
        logits = torch.empty(0)
        while done < context:
            size = min(CHUNK, context - done)
            logits, memory = model(ids[:, done : done + size], memory)
            done += size
        rows.append(
            {"context": context, "seconds": _step_seconds(model, memory, logits[:, -1]), "bytes": memory.nbytes}
        )
    return rows


def _step_seconds(model: Any, memory: Any, logits: torch.Tensor) -> float:
    """Return the median time of a symbol as `generate` produces it; the first few prepare what the others use."""
    passed = []
    generated = stream(model, [[]], Settings(tokens=STEPS, greedy=True), memory, logits=logits)
    for _ in range(STEPS):
        begun = time.perf_counter()
        next(generated)  # the id is on the CPU: nothing is still being computed
        passed.append(time.perf_counter() - begun)
    return statistics.median(passed[FIRST:])


def growth_of(rows: Sequence[JsonMapping], name: str) -> float | None:
    """Return b of figure = a · context^b over the upper half of the contexts; None for fewer than three."""
    if len(rows) < LEAST or min(float(row[name]) for row in rows) <= 0:
        return None
    sizes, values = [float(row["context"]) for row in rows], [float(row[name]) for row in rows]
    start = upper_half(sizes)
    return exponent(sizes[start:], values[start:])
