"""Training: the loop is a page.

A stretch of text is read, the loss is taken back through it, the weights move. Memories of bounded size are carried
from one stretch to the next and cut there (truncated back-propagation through time); full attention begins each window
anew. Everything the loop needs to go on is in `Trainee`, and a checkpoint holds all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recollect.capture import Captured
from recollect.checkpoint import Progress, load_checkpoint, newest_checkpoint, save_checkpoint
from recollect.data.batches import gather, renew
from recollect.data.documents import Documents, Ends
from recollect.entry import check_choice
from recollect.evaluate import score_carried, score_windows
from recollect.memory import Memory
from recollect.models.language import LanguageModel
from recollect.optimise import Optimise
from recollect.truncation import Truncation


class Batches(Protocol):
    """Where stretches of text come from, again and again; its place can be kept."""

    def __iter__(self) -> Iterator[Any]:
        """Give batches with `x` and `y` (B, T), `valid` (B, T) or None, and `is_start` (B,): begin anew in this row."""

    @property
    def predicted(self) -> int:
        """Symbols that one round predicts."""

    def state(self) -> dict[str, Any]:
        """Give the place as plain data."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""


@dataclass(frozen=True)
class Budget:
    """When to stop: the first of these that is reached."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def spent(self, progress: Progress) -> float:
        """Give the share of the budget that is spent, 0 to 1."""
        pairs = [(progress.step, self.steps), (progress.tokens, self.tokens), (progress.seconds, self.seconds)]
        return min(1.0, max((done / limit for done, limit in pairs if limit), default=0.0))


@dataclass(frozen=True)
class Plan:
    """How to train."""

    budget: Budget
    optimise: Optimise = field(default_factory=Optimise)
    accumulate: int = 1  # batches to one update, weighted by their symbols
    evaluate_every: int = 200  # updates
    save_every: int = 200  # updates
    patience: int | None = None  # stop after so many evaluations without a better one
    steps: int = 128  # symbols that evaluation reads at once: no more than a stretch, for models of windows
    truncation: Truncation = field(default_factory=Truncation)
    capture: bool = True  # on a GPU: replay one CUDA graph where stretches are alike
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: products in bfloat16, weights and their updates in float32
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, ("fp32", "bf16"))


class Diverged(RuntimeError):
    """The loss or a gradient is no longer a number."""


@dataclass
class Trainee:
    """A model in training: all that changes while it learns."""

    model: LanguageModel
    batches: Batches
    optimiser: torch.optim.Optimizer
    memory: Memory | None = None
    captured: Captured | None = None  # what a GPU replays
    compiled: Any = None  # the model as torch.compile gives it, for updates alone
    progress: Progress = field(default_factory=Progress)


def train(
    trainee: Trainee,
    plan: Plan,
    valid_ids: NDArray[Any],
    checkpoints: Path,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
    is_stopped: Callable[[], bool] = lambda: False,
    valid_ends: Ends = None,
) -> bool:
    """Train until the budget is spent, or until asked to stop; say whether it was spent.

    Evaluate, save, stop, step, log, in that order.
    """
    source = iter(trainee.batches)
    while True:
        step, share = trainee.progress.step, plan.budget.spent(trainee.progress)
        if (step % plan.evaluate_every == 0 or share >= 1) and trainee.progress.evaluated != step:
            report({"step": step, "valid_loss": evaluate(trainee, plan, valid_ids, valid_ends)})
        is_over = share >= 1 or (plan.patience is not None and trainee.progress.worse >= plan.patience)
        is_last = is_over or is_stopped()
        if is_last or trainee.progress.best_step == step or (step and step % plan.save_every == 0):
            save(trainee, checkpoints, plan.keep)
        if is_last:
            return is_over
        begun = time.perf_counter()  # only learning counts as time: a slow evaluation takes nothing from a fair budget
        row = update(trainee, source, plan, share)
        trainee.progress = replace(trainee.progress, seconds=trainee.progress.seconds + time.perf_counter() - begun)
        report({"step": step + 1, "tokens": trainee.progress.tokens, "seconds": trainee.progress.seconds, **row})


def update(trainee: Trainee, source: Iterator[Any], plan: Plan, share: float) -> dict[str, Any]:
    """Move the weights once: the gradient of the mean loss per symbol over `accumulate` batches."""
    batches = [next(source) for _ in range(plan.accumulate)]
    count = sum(_count(batch) for batch in batches)
    if not trainee.model.training:
        trainee.model.train()
    total = captured_gradients(trainee, batches, plan)
    if total is None:
        total = gradients(trainee, batches, plan, count)
    rate = plan.optimise.rate_at(share, trainee.progress.setbacks)
    for group in trainee.optimiser.param_groups:
        group["lr"] = rate
    norm = plan.optimise.clip(trainee.model.parameters())
    if not math.isfinite(norm):
        raise Diverged(f"a gradient is not finite at step {trainee.progress.step}; lower the rate or clip harder")
    trainee.optimiser.step()
    done = trainee.progress
    trainee.progress = replace(done, step=done.step + 1, tokens=done.tokens + count)
    return {"train_loss": total, "rate": rate, "gradient_norm": norm}


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
    memory = None if not model.carries else trainee.memory
    if memory is not None:
        memory = renew(memory, model.initial_memory(len(batch.x)), batch.is_start)
    valid = None if batch.valid is None else batch.valid.to(device)
    reader = model if trainee.compiled is None else trainee.compiled
    with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
        logits, after = plan.truncation.read(reader, batch.x.to(device), memory, valid)
    trainee.memory = after.detach().to(next(model.parameters()).dtype) if model.carries else None
    real = slice(None) if valid is None else valid
    logits = logits[real].flatten(0, -2).float() if plan.precision == "bf16" else logits[real].flatten(0, -2)
    return F.cross_entropy(logits, batch.y.to(device)[real].flatten(), reduction="sum")


def _device(trainee: Trainee) -> torch.device:
    return next(trainee.model.parameters()).device


def _count(batch: Any) -> int:
    return int(batch.y.numel() if batch.valid is None else batch.valid.sum())


def evaluate(trainee: Trainee, plan: Plan, ids: NDArray[Any], ends: Ends = None) -> float:
    """Give the validation loss, and note whether it is the best so far."""
    loss, done = validation_loss(trainee.model, ids, plan.steps, ends), trainee.progress
    if done.best is None or loss < done.best:
        trainee.progress = replace(done, best=loss, best_step=done.step, evaluated=done.step, worse=0)
    else:
        worse, setbacks = done.worse + 1, done.setbacks + 1
        trainee.progress = replace(done, evaluated=done.step, worse=worse, setbacks=setbacks)
    return loss


def validation_loss(model: LanguageModel, ids: NDArray[Any], steps: int, ends: Ends = None) -> float:
    """Nats per symbol over the whole text: carried where training carries, in cold windows otherwise."""
    score = score_carried if model.carries else score_windows
    return score(model, ids, steps, ends=ends).loss


def save(trainee: Trainee, checkpoints: Path, keep: int) -> Path:
    """Write a checkpoint of everything."""
    place = trainee.batches.state()
    return save_checkpoint(
        checkpoints, trainee.model, trainee.optimiser, trainee.memory, trainee.progress, place, keep=keep
    )


def go_on(trainee: Trainee, checkpoints: Path) -> list[str]:
    """Put a trainee back to its newest whole checkpoint; give the notices of damaged ones."""
    path, notices = newest_checkpoint(checkpoints)
    trainee.progress, place, memory = load_checkpoint(path, trainee.model, trainee.optimiser)
    trainee.memory = None if memory is None else memory.to(next(trainee.model.parameters()).device)
    trainee.batches.load_state(place)
    return notices


def count_symbols(model: LanguageModel, ids: NDArray[Any], piece: int = 10_000_000, ends: Ends = None) -> None:
    """Train a model that counts: each document is one row, read once."""
    markov: Any = model.body
    for places, lengths in Documents(ids, ends).by_length(rows=piece, cells=piece):
        for done in range(0, int(lengths[0]), piece):
            x, _, valid = gather(ids, places + done, np.minimum(lengths - done, piece))
            markov.count(x, valid)
