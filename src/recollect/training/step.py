"""The gradient of some batches: read, compare with what follows, go back. On a GPU by captured graphs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.capture import Captured, Layout, layout_of
from recollect.core.memory import Memory
from recollect.data.pairs.pair_batches import pad_batch
from recollect.data.text.batches import renew
from recollect.training.state import Diverged, Plan, Trainee

MOST_GRAPHS = 64  # of one trainee
IGNORED = -100  # a target that no symbol has


def gradients(trainee: Trainee, batches: list[Any], plan: Plan, count: int) -> float:
    """Give the mean loss over the batches' `count` symbols, and the parameters its gradient."""
    trainee.optimiser.zero_grad(set_to_none=True)
    total = 0.0
    for batch in batches:
        loss = stretch_loss(trainee, batch, plan) / count
        total += finite(float(loss.detach()), trainee)
        loss.backward()
    return total


def captured_gradients(trainee: Trainee, batches: list[Any], plan: Plan) -> float | None:
    """Do as `gradients` by a captured graph; None where there is no GPU, or none for a batch like this one."""
    if not plan.capture or len(batches) > 1 or not _on_gpu(trainee) or not _is_ordinary(trainee, batches[0], plan):
        return None
    given = _given(trainee, batches[0])
    captured = _graph_for(trainee, given, plan)
    if captured is None:
        return None
    loss, trainee.memory = captured(given)
    return finite(float(loss), trainee)


def _is_ordinary(trainee: Trainee, batch: Any, plan: Plan) -> bool:
    """Whether a batch is one of pairs, or a stretch of text that only goes on: neither ragged nor begun anew."""
    if _source(batch) is not None:
        return True
    return batch.valid is None and not plan.smoothing and not (trainee.model.carries and batch.is_start.any())


def _graph_for(trainee: Trainee, given: Given, plan: Plan) -> Captured | None:
    """Give the graph for a layout, a new one where it is due; the one that was not used for longest makes room."""
    layout, graphs, model = layout_of(given), trainee.captured, trainee.model
    if layout not in graphs:
        if not _is_due(trainee, layout, given):
            return None
        if len(graphs) >= MOST_GRAPHS:
            oldest = next(iter(graphs))
            del graphs[oldest]
            trainee.seen.discard(oldest)  # else it would push out another at once
        beside = next(iter(graphs.values()), None)
        graphs[layout] = Captured(partial(mean_loss, model, plan), given, model.parameters(), beside)
    graphs[layout] = graphs.pop(layout)  # the last used is the last
    return graphs[layout]


def _is_due(trainee: Trainee, layout: Layout, given: Given) -> bool:
    """Say when to capture. Stretches of text are alike: the first, at once, and no other.

    Of pairs what comes for the second time: a capture takes as long as several updates, too long for an odd shape.
    """
    if given.source is None:
        return not trainee.captured
    is_known = layout in trainee.seen
    trainee.seen.add(layout)
    return is_known


class Given(NamedTuple):
    """All that the loss of a batch hangs on, but the weights."""

    x: Tensor  # (B, T)
    y: Tensor  # (B, T)
    valid: Tensor | None  # (B, T)
    memory: Memory | None  # what is carried
    source: Tensor | None  # (B, S), or pictures
    source_valid: Tensor | None  # (B, S)


def _given(trainee: Trainee, batch: Any) -> Given:
    """Give a batch as a graph takes it: pairs are padded, so that few shapes occur."""
    if _source(batch) is None:
        return Given(batch.x, batch.y, None, trainee.memory, None, None)
    padded = pad_batch(batch)
    return Given(padded.x, padded.y, padded.valid, None, padded.source, padded.source_valid)


def mean_loss(model: Any, plan: Plan, given: Given) -> tuple[Tensor, Memory | None]:
    """Give the mean loss of the real symbols, and what is carried on, cut from the graph.

    What `stretch_loss` gives over the count, in a form that can be captured: no shape hangs on a value. Symbols that
    are not real are not left out but ignored.
    """
    is_narrow = plan.precision == "bf16"
    with torch.autocast(given.x.device.type, torch.bfloat16, enabled=is_narrow):
        memory = given.memory if given.source is None else model.remember(given.source, given.source_valid)
        logits, after = plan.truncation.read(model, given.x, memory, given.valid)
    logits = logits.float() if is_narrow else logits
    y = given.y if given.valid is None else given.y.masked_fill(~given.valid, IGNORED)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED, label_smoothing=plan.smoothing)
    return loss, after.detach() if model.carries else None


def finite(loss: float, trainee: Trainee) -> float:
    """Give a loss back, and stop where it is no number."""
    if not math.isfinite(loss):
        raise Diverged(f"the loss is {loss} at step {trainee.progress.step}; lower the rate")
    return loss


def stretch_loss(trainee: Trainee, batch: Any, plan: Plan) -> Tensor:
    """Give the summed loss of one stretch; carry the memory on, cut from the graph."""
    model, device = trainee.model, _device(trainee)
    valid = None if batch.valid is None else batch.valid.to(device)
    reader = model if trainee.compiled is None else trainee.compiled
    with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
        memory = _memory(trainee, batch, device)
        logits, after = plan.truncation.read(reader, batch.x.to(device), memory, valid)
    trainee.memory = after.detach().to(next(model.parameters()).dtype) if model.carries else None
    real = slice(None) if valid is None else valid
    logits = logits[real].flatten(0, -2).float() if plan.precision == "bf16" else logits[real].flatten(0, -2)
    y = batch.y.to(device)[real].flatten()
    return F.cross_entropy(logits, y, reduction="sum", label_smoothing=plan.smoothing)


def _memory(trainee: Trainee, batch: Any, device: torch.device) -> Memory | None:
    """Give what a batch is read with: its source, what is carried, or nothing."""
    source = _source(batch)
    if source is not None:
        valid = None if batch.source_valid is None else batch.source_valid.to(device)
        memory: Memory = trainee.model.remember(source.to(device), valid)
        return memory
    if trainee.memory is None or not trainee.model.carries:
        return None
    return renew(trainee.memory, trainee.model.initial_memory(len(batch.x)), batch.is_start)


def _source(batch: Any) -> Tensor | None:
    """Give what a batch's targets are said from; stretches of text have none."""
    return getattr(batch, "source", None)


def _on_gpu(trainee: Trainee) -> bool:
    return _device(trainee).type == "cuda"


def _device(trainee: Trainee) -> torch.device:
    return next(trainee.model.parameters()).device


def count_predicted(batch: Any) -> int:
    """Count the symbols that a batch predicts."""
    return int(batch.y.numel() if batch.valid is None else batch.valid.sum())
