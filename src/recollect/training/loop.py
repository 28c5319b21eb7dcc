"""Training: the loop is a page.

A stretch of text is read, the loss is taken back through it, the weights move. Memories of bounded size are carried
from one stretch to the next and cut there (truncated back-propagation through time); full attention begins each window
anew. Everything the loop needs to go on is in `Trainee`, and a checkpoint holds all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.data.text.batches import gather
from recollect.data.text.documents import Documents, Ends
from recollect.evaluation.likelihood import score_carried, score_windows
from recollect.models.language import LanguageModel
from recollect.training.checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from recollect.training.state import Diverged, Plan, Trainee
from recollect.training.step import captured_gradients, count_predicted, gradients


def train(
    trainee: Trainee,
    plan: Plan,
    validate: Callable[[Any], float],
    checkpoints: Path,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Train until the budget is spent, or until asked to stop; say whether it was spent.

    `validate` gives a model's loss on what is held out. Evaluate, save, stop, step, log, in that order.
    """
    source = iter(trainee.batches)
    while True:
        step, share = trainee.progress.step, plan.budget.spent(trainee.progress)
        if (step % plan.evaluate_every == 0 or share >= 1) and trainee.progress.evaluated != step:
            report({"step": step, "valid_loss": evaluate(trainee, validate)})
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
    count = sum(count_predicted(batch) for batch in batches)
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


def evaluate(trainee: Trainee, validate: Callable[[Any], float]) -> float:
    """Give the validation loss, and note whether it is the best so far."""
    loss, done = validate(trainee.model), trainee.progress
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
