"""Time for one more symbol, and bytes remembered, against the symbols read before, at 128 to 16,384 of them.

A language model generates, as `generate` does. Other models that read in chunks read one more step. A translator reads
sources of these lengths, and generates its target.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from recollect.bench.power_law import LEAST, exponent, upper_half
from recollect.core.errors import ContractError
from recollect.core.layer import SequenceLayer
from recollect.core.types import JsonMapping, JsonObject
from recollect.generation.sampling import stream
from recollect.generation.settings import Settings
from recollect.models.translation import Translator

CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
CHUNK = 1024  # symbols read at once
STEPS = 24  # symbols that are timed at each context
FIRST = 4  # of these are not counted: they prepare what the others use
ENOUGH = 8.0  # seconds of reading after which no longer context is tried
Read: TypeAlias = tuple[int, Any, Tensor]  # a context, the memory after it, the last outputs (1, V)


@torch.no_grad()
def read_contexts(model: Any, contexts: Sequence[int] = CONTEXTS, patience: float = ENOUGH) -> list[JsonObject]:
    """Return rows of context, seconds for one more symbol and bytes remembered; none of a model that cannot."""
    rows: list[JsonObject] = []
    begun = time.perf_counter()
    for context, memory, outputs in _reading(model, contexts):
        seconds = _step_seconds(model, memory, outputs)
        rows.append({"context": context, "seconds": seconds, "bytes": memory.nbytes})
        if time.perf_counter() - begun > patience:
            break
    return rows


def _reading(model: Any, contexts: Sequence[int]) -> Iterator[Read]:
    """Read ever longer contexts, as far as a table of positions goes."""
    longest = getattr(getattr(model, "config", None), "max_length", None)
    within = [context for context in contexts if longest is None or context + STEPS <= longest]
    if isinstance(model, Translator):
        if not model.config.frames:
            yield from _sources(model, within)
    elif isinstance(model, SequenceLayer) and model.streams and _begins(model):
        yield from _chunks(model, within)


def _begins(model: Any) -> bool:
    """Return whether a model has a memory of its own to begin with, not that of a source."""
    try:
        model.initial_memory(1)
    except ContractError:
        return False
    return model.width is not None or hasattr(model, "vocab_size")


def _sources(model: Translator, contexts: Sequence[int]) -> Iterator[Read]:
    """Read a source of each length, and the first symbol of a target."""
    for context in contexts:
        source = torch.Generator().manual_seed(0)
        ids = torch.randint(model.config.source_vocab, (1, context), generator=source).to(_device(model))
        logits, memory = model(ids.new_zeros(1, 1), model.remember(ids))
        yield context, memory, logits[:, -1]


def _chunks(model: Any, contexts: Sequence[int]) -> Iterator[Read]:
    """Read one sequence on and on."""
    memory, done, outputs = model.initial_memory(1), 0, torch.empty(0)
    for context in contexts:
        while done < context:
            size = min(CHUNK, context - done)
            outputs, memory = model(_drawn(model, size, done), memory)
            done += size
        yield context, memory, outputs[:, -1]


def _drawn(model: Any, steps: int, seed: int = 0) -> Tensor:
    """Return random inputs: ids (1, T), or values (1, T, D)."""
    source = torch.Generator().manual_seed(seed)
    if model.width is None:
        return torch.randint(int(model.vocab_size), (1, steps), generator=source).to(_device(model))
    like = next(model.parameters(), torch.empty(0))
    return torch.randn(1, steps, model.width, generator=source).to(like)


def _device(model: Any) -> torch.device:
    return next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def _step_seconds(model: Any, memory: Any, outputs: Tensor) -> float:
    """Return the least time of one more symbol: what other programs take is not the model's."""
    passed = []
    steps = _generated(model, memory, outputs) if _generates(model, outputs) else _read(model, memory)
    for _ in range(STEPS):
        begun = time.perf_counter()
        next(steps)
        passed.append(time.perf_counter() - begun)
    return min(passed[FIRST:])


def _generates(model: Any, outputs: Tensor) -> bool:
    """Return whether the outputs are those of the next symbol; of a classifier they are those of labels."""
    return model.width is None and outputs.shape[-1] == model.vocab_size


def _generated(model: Any, memory: Any, outputs: Tensor) -> Iterator[object]:
    """Generate; each id is on the CPU when it is there, so that nothing is still being computed."""
    yield from stream(model, [[]], Settings(tokens=STEPS, greedy=True), memory, logits=outputs)


def _read(model: Any, memory: Any) -> Iterator[object]:
    """Read steps one by one."""
    x = _drawn(model, STEPS)
    for step in range(STEPS):
        memory = model(x[:, step : step + 1], memory)[1]
        if x.is_cuda:
            torch.cuda.synchronize()
        yield memory


def growth_of(rows: Sequence[JsonMapping], name: str) -> float | None:
    """Return b of figure = a · context^b over the upper half of the contexts; None for fewer than three."""
    if len(rows) < LEAST or min(float(row[name]) for row in rows) <= 0:
        return None
    sizes, values = [float(row["context"]) for row in rows], [float(row[name]) for row in rows]
    start = upper_half(sizes)
    return exponent(sizes[start:], values[start:])
