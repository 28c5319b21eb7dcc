"""The training loop.

A batch is read, the loss is back-propagated, the weights are updated. Memories of bounded size are carried from one
batch to the next and detached there (truncated back-propagation through time). Everything the loop needs to resume is
in `TrainingState`, and a checkpoint holds all of it.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.core.task import Scores
from recollect.core.types import AnyLayer, JsonObject
from recollect.training.average import update_average
from recollect.training.checkpoint import (
    Progress,
    load_checkpoint,
    load_result,
    newest_checkpoint,
    optimizer_tensors,
    save_checkpoint,
)
from recollect.training.replicas import seen_by_all, shared_gradients
from recollect.training.shard_files import FOLDER, write_shards
from recollect.training.state import Diverged, TrainingPlan, TrainingState
from recollect.training.step import gradients


def train(
    state: TrainingState,
    plan: TrainingPlan,
    validate: Callable[[AnyLayer], Scores],
    checkpoints: Path,
    report: Callable[[JsonObject], None] = lambda row: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Train until the budget is spent, or until `is_stopped` returns True; return whether it was spent.

    `validate` measures a model on held-out data. Evaluate, save, stop, step, log, in that order.
    """
    source = iter(state.batches)
    while True:
        step = state.progress.step
        share = plan.budget.spent(state.progress)
        if (step % plan.evaluate_every == 0 or share >= 1) and state.progress.evaluated != step:
            report({"step": step, **evaluate(state, validate)})
        is_over = share >= 1 or (plan.patience is not None and state.progress.worse >= plan.patience)
        is_last = is_over or state.workers.any(is_stopped())
        if is_last or state.progress.best_step == step or (step and step % plan.save_every == 0):
            save(state, checkpoints, plan.keep)
        if is_last:
            return is_over
        begun = time.perf_counter()  # only updates count: the budget is the same however slow the evaluation
        row = update(state, source, plan, share)
        seconds = state.workers.first(state.progress.seconds + time.perf_counter() - begun)
        state.progress = replace(state.progress, seconds=seconds)
        report({"step": step + 1, "tokens": state.progress.tokens, "seconds": state.progress.seconds, **row})


def update(state: TrainingState, source: Iterator[Any], plan: TrainingPlan, share: float) -> dict[str, float]:
    """Update the weights once, by the gradient of the mean loss per prediction over `accumulate` batches."""
    batches = [next(source) for _ in range(plan.accumulate)]
    if not state.model.training:
        state.model.train()
    if plan.optimizer.unfreeze(state.optimizer, share):  # graphs were captured with other gradients
        state.captured.clear()
        state.seen.clear()
        state.network = None
    total = (gradients if state.workers.size == 1 else shared_gradients)(state, batches, plan)
    if not math.isfinite(total):
        raise Diverged(f"the loss is {total} at step {state.progress.step}; lower the rate")
    rate = plan.optimizer.rate_at(share, state.progress.setbacks)
    plan.optimizer.set_rates(state.optimizer, rate)
    norm = plan.optimizer.clip(state.model.parameters())
    if not math.isfinite(norm):
        raise Diverged(f"a gradient is not finite at step {state.progress.step}; lower the rate or clip harder")
    state.optimizer.step()
    done = state.progress
    if state.average is not None:
        update_average(state.average, state.model, plan.average, done.step + 1)
    state.progress = replace(done, step=done.step + 1, tokens=done.tokens + sum(batch.count for batch in batches))
    return {"train_loss": total, "rate": rate, "gradient_norm": norm}


def evaluate(state: TrainingState, validate: Callable[[AnyLayer], Scores]) -> dict[str, float]:
    """Return the validation figures by name, the deciding one first, and record whether it is the best so far.

    Of several processes the first measures, and the others are told; a sharded model is measured by all at once.
    """
    found = seen_by_all(state, lambda model: _measured(state, validate))
    state.progress = Progress(**found["progress"])
    row: dict[str, float] = found["row"]
    return row


def _measured(state: TrainingState, validate: Callable[[AnyLayer], Scores]) -> JsonObject:
    scores = validate(state.result)
    done = state.progress
    is_best = done.best is None or (scores.value < done.best if scores.lower_is_better else scores.value > done.best)
    if is_best:
        after = replace(done, best=scores.value, best_step=done.step, evaluated=done.step, worse=0)
    else:
        after = replace(done, evaluated=done.step, worse=done.worse + 1, setbacks=done.setbacks + 1)
    others = {f"valid_{name}": value for name, value in next(iter(scores.rows.values())).items()}
    return {"row": {f"valid_{scores.decisive}": scores.value} | others, "progress": vars(after)}


def save(state: TrainingState, checkpoints: Path, keep: int) -> None:
    """Write a checkpoint of the training state: the first process, of the rows of all, and all of a sharded model."""
    position = state.batches.state()
    memory = state.workers.joined(state.memory)
    shards = _save_shards(state, checkpoints) if state.is_sharded else None
    if state.workers.is_first:
        parts = (state.model, state.optimizer, memory, state.progress, position)
        save_checkpoint(checkpoints, *parts, keep=keep, average=state.average, shards=shards)


def _save_shards(state: TrainingState, checkpoints: Path) -> Path:
    """Write each process's shards into one folder; return it once all have done so."""
    folder = checkpoints / f"{FOLDER}.new"
    if state.workers.is_first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    state.workers.wait()
    tensors = {**state.model.state_dict(), **optimizer_tensors(state.optimizer)}
    write_shards(tensors, folder, state.workers.launch.rank)
    state.workers.wait()
    return folder


def restore(state: TrainingState, checkpoints: Path) -> list[str]:
    """Restore a state from its newest intact checkpoint; return a notice for each damaged one."""
    found = state.workers.told(lambda: _newest(checkpoints))
    path = Path(found["path"])
    state.progress, position, memory = load_checkpoint(path, state.model, state.optimizer)
    if state.average is not None:
        load_result(path, state.average)
    device = next(state.model.parameters()).device
    state.memory = None if memory is None else state.workers.own_memory(memory).to(device)
    state.batches.load_state(position)
    notices: list[str] = found["notices"]
    return notices


def _newest(checkpoints: Path) -> JsonObject:
    path, notices = newest_checkpoint(checkpoints)
    return {"path": str(path), "notices": notices}
