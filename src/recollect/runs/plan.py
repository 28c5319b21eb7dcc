"""What `recollect plan` does: will it fit, and how long will it take, on this machine; by two seconds of trying it."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from rich.table import Table

from recollect.core.machine import available_memory, choose_device, describe, forget_peak, peak_memory
from recollect.core.task import Task
from recollect.runs.config import RunConfig
from recollect.runs.progress import bytes_in_words, time_in_words
from recollect.runs.train import counts, start
from recollect.training.checkpoint import Progress, optimizer_tensors
from recollect.training.loop import update
from recollect.training.state import Budget, TrainingState

WARM = 2  # updates before the clock starts: the first ones allocate
LEAST = 3  # updates that are timed, at least
PART = 200_000  # symbols that a counting model is tried on
MEASURED = 4096  # symbols, or examples, that an evaluation is tried on


def forecast(config: RunConfig, seconds: float = 2.0) -> dict[str, Any]:
    """Try a fresh model on the real data, and return what the whole of the training would take; nothing is kept."""
    device, task = choose_device(config.training.device), config.make_task()
    dataset = task.open(config.data)
    torch.manual_seed(config.training.seed)
    model_config = asdict(task.config(config.family, config.size, dataset, config.settings))
    with torch.device("meta"):
        count = sum(p.numel() for p in task.build(model_config).parameters())
    room, least = available_memory(device), count * 2 * 4  # weights and gradients in float32
    facts: dict[str, Any] = {"data": config.data, "family": config.family, "size": config.size, "parameters": count}
    facts |= {"machine": describe(device), "available_bytes": room}
    if least > room:
        return _refused(facts, config, f"weights and gradients alone take {bytes_in_words(least)}")
    try:
        return facts | _tried(config, task, task.build(model_config).to(device), dataset, seconds)
    except (RuntimeError, MemoryError) as error:
        if "allocate" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        return _refused(facts, config, str(error).splitlines()[0])


def _refused(facts: dict[str, Any], config: RunConfig, reason: str) -> dict[str, Any]:
    options = config.options
    if hasattr(options, "batch_size"):
        config = replace(config, options=replace(options, batch_size=max(options.batch_size // 2, 1)))
    return facts | {"fits": False, "reason": reason, "next": f"recollect plan {config.typed()}"}


def _tried(config: RunConfig, task: Task, model: Any, dataset: Any, seconds: float) -> dict[str, Any]:
    device = choose_device(config.training.device)
    forget_peak(device)
    about = task.about(dataset, model)
    if counts(model):
        facts = _count_part(task, model, dataset, about.parts)
    else:
        facts = _learn_a_while(config, task, start(config, task, model, dataset), dataset, about.parts, seconds)
    peak = peak_memory(device)
    facts |= {"memory_bytes": {str(read): count for read, count in about.memory.items()}, "peak_bytes": peak}
    return facts | {"fits": peak < available_memory(device), "next": f"recollect train {config.typed()}"}


def _count_part(task: Task, model: Any, dataset: Any, parts: tuple[int, int, int]) -> dict[str, Any]:
    """Count a part of the text, and take it that the rest goes as fast."""
    begun = time.perf_counter()
    counted = task.fit(model, dataset, PART)
    counting = (time.perf_counter() - begun) / counted
    state = sum(buffer.nbytes for buffer in model.buffers())
    evaluating = _evaluation_seconds(task, model, dataset, parts[1])
    facts: dict[str, Any] = {"tried_tokens": counted, "state_bytes": state, "tokens_per_second": 1 / counting}
    facts |= {"tokens": parts[0], "epochs": 1.0, "evaluations": 1, "evaluation_seconds": evaluating}
    learning = counting * parts[0]
    return facts | {"learning_seconds": learning, "seconds": learning + evaluating}


def _learn_a_while(
    config: RunConfig, task: Task, state: TrainingState, dataset: Any, parts: tuple[int, int, int], seconds: float
) -> dict[str, Any]:
    """Make real updates for some seconds, and extrapolate until the budget is spent."""
    epoch, source = state.batches.predicted, iter(state.batches)
    plan = config.training.plan(epoch)
    for _ in range(WARM):
        update(state, source, plan, 0.0)
    before, begun = state.progress, time.perf_counter()
    while state.progress.step < before.step + LEAST or time.perf_counter() - begun < seconds:
        update(state, source, plan, 0.0)
    passed = time.perf_counter() - begun
    count, read = state.progress.step - before.step, state.progress.tokens - before.tokens
    facts = {"tried_updates": count, "tried_seconds": passed, "state_bytes": _state_bytes(state)}
    facts |= {"tokens_per_second": read / passed, "seconds_per_update": passed / count}
    updates = updates_until_spent(plan.budget, read / count, passed / count)
    evaluations = math.ceil(updates / plan.evaluate_every) + 1
    evaluating = _evaluation_seconds(task, state.model, dataset, parts[1])
    tokens = round(updates * read / count)
    facts |= {"updates": updates, "tokens": tokens, "epochs": tokens / epoch}
    facts |= {"evaluations": evaluations, "evaluation_seconds": evaluating}
    learning = updates * passed / count
    return facts | {"learning_seconds": learning, "seconds": learning + evaluations * evaluating}


def _evaluation_seconds(task: Task, model: Any, dataset: Any, size: int) -> float:
    """Measure the beginning of the validation part, and take it that the rest goes as fast."""
    begun = time.perf_counter()
    task.measure(model, dataset, "valid", MEASURED)
    return (time.perf_counter() - begun) * size / max(min(size, MEASURED), 1)


def updates_until_spent(budget: Budget, tokens: float, seconds: float) -> int:
    """Give the number of updates, of so many symbols and seconds each, that a budget buys."""
    share = budget.spent(Progress(step=1, tokens=round(tokens), seconds=seconds))
    return math.ceil(1 / share - 1e-9)


def _state_bytes(state: TrainingState) -> int:
    """Return the bytes of weights, gradients and what the optimizer keeps."""
    weights = list(state.model.parameters())
    held = [*weights, *(p.grad for p in weights if p.grad is not None), *optimizer_tensors(state.optimizer).values()]
    return sum(t.nbytes for t in held)


# ---- words -------------------------------------------------------------------------------------------


def as_table(facts: dict[str, Any]) -> Table:
    """Show a forecast."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(facts).items():
        table.add_row(name, value)
    return table


def _lines(facts: dict[str, Any]) -> dict[str, str]:
    lines = {"model": f"{facts['family']}, {facts['size']}, {facts['parameters']:,} parameters"}
    lines["machine"] = facts["machine"]
    room = f"{bytes_in_words(facts['available_bytes'])} available"
    if "reason" in facts:
        return lines | {"fits": f"no: {facts['reason']}; {room}"}
    answer = "yes" if facts["fits"] else "no"
    lines["fits"] = f"{answer}: {bytes_in_words(facts['peak_bytes'])} at most while trying it, {room}"
    held = "weights, gradients, optimiser" if "updates" in facts else f"counts of {facts['tried_tokens']:,} tokens"
    lines[held] = bytes_in_words(facts["state_bytes"])
    return lines | _times(facts)


def _times(facts: dict[str, Any]) -> dict[str, str]:
    speed = f"{facts['tokens_per_second']:,.0f} tokens/s"
    bought = f"{facts['tokens']:,} tokens, {facts['epochs']:.2f} epochs"
    if "updates" in facts:
        speed += f", {facts['seconds_per_update'] * 1000:.1f} ms an update"
        bought = f"{facts['updates']:,} updates, {bought}"
    each = f"evaluations: {facts['evaluations']} of {facts['evaluation_seconds']:.1f} s"
    time = f"{time_in_words(facts['seconds'])}: {time_in_words(facts['learning_seconds'])} of learning, {each}"
    kept = [f"{bytes_in_words(count)} after {int(n):,} tokens" for n, count in facts["memory_bytes"].items()]
    return {"speed": speed, "the budget buys": bought, "time": time, "memory of one row": ", ".join(kept)}
