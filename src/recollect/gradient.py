"""The gradient of some batches: read, compare with what follows, go back. On a GPU by a captured graph."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.capture import Captured
from recollect.data.batches import renew
from recollect.memory import Memory
from recollect.trainee import Diverged, Plan, Trainee


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
    """Do as `gradients` by a captured graph; None where there is no GPU, or the stretch is not an ordinary one."""
    model, device, (batch, *more) = trainee.model, _device(trainee), batches
    is_ordinary = batch.valid is None and not more and not (model.carries and batch.is_start.any())
    is_ordinary = is_ordinary and getattr(batch, "source", None) is None and not plan.smoothing
    if device.type != "cuda" or not plan.capture or not is_ordinary:
        return None
    x, y = batch.x.to(device), batch.y.to(device)
    if trainee.captured is None:
        trainee.captured = Captured(model, x, y, trainee.memory, plan.truncation, plan.precision == "bf16")
    if not trainee.captured.fits(x, trainee.memory):
        return None
    loss, after = trainee.captured(x, y, trainee.memory)
    trainee.memory = after if model.carries else None
    return finite(float(loss), trainee)


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
    source = getattr(batch, "source", None)
    if source is not None:
        valid = None if batch.source_valid is None else batch.source_valid.to(device)
        memory: Memory = trainee.model.remember(source.to(device), valid)
        return memory
    if trainee.memory is None or not trainee.model.carries:
        return None
    return renew(trainee.memory, trainee.model.initial_memory(len(batch.x)), batch.is_start)


def _device(trainee: Trainee) -> torch.device:
    return next(trainee.model.parameters()).device


def count_predicted(batch: Any) -> int:
    """Count the symbols that a batch predicts."""
    return int(batch.y.numel() if batch.valid is None else batch.valid.sum())
