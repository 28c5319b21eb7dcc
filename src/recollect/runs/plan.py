"""The forecast of `recollect plan`: memory and time of a training on this machine, from two seconds of training.

For several devices like this one, one device's share of the rows is tried; the rest is the model of `scaling`.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from rich.table import Table
from torch import nn

from recollect.core.machine import available_memory, choose_device, describe, forget_peak, peak_memory
from recollect.core.meta import on_meta
from recollect.core.settings import SettingError
from recollect.core.task import Dataset, Task
from recollect.core.threads import fitting_threads
from recollect.core.types import JsonObject
from recollect.data.names import in_short
from recollect.models.parameters import Parameters, count_apart
from recollect.runs.capacity import ALONE, least_bytes, smaller
from recollect.runs.config import RunConfig
from recollect.runs.progress import bytes_in_words, time_in_words
from recollect.runs.scaling import LINKS, update_seconds
from recollect.runs.together import check_shared
from recollect.runs.train import counts, start
from recollect.training.checkpoint import Progress, optimizer_tensors
from recollect.training.loop import update
from recollect.training.state import TrainingBudget, TrainingState

WARM = 2  # updates before the clock starts: the first ones allocate
LEAST = 3  # updates that are timed, at least
PART = 200_000  # symbols that a counting model is timed on
OF_ONE = ("updates", "tokens", "epochs", "evaluations", "learning_seconds", "seconds", "tokens_per_second")
MEASURED = 4096  # symbols, or examples, that an evaluation is timed on


def forecast(config: RunConfig, seconds: float = 2.0, devices: int = 1) -> JsonObject:
    """Train a new model on the data for some seconds, and return an estimate for the training; nothing is saved."""
    if devices > 1:
        return forecast_shared(config, seconds, devices)
    device = choose_device(config.training.device)
    task = config.make_task()
    dataset = task.open(config.data)
    torch.manual_seed(config.training.seed)
    model_config = asdict(task.config(config.family, config.size, dataset, config.settings))
    with on_meta():
        parameters = count_apart(task.build(model_config))
    available = available_memory(device)
    least = least_bytes(parameters)
    facts: JsonObject = {
        "data": in_short(config.data),
        "family": config.family,
        "size": config.size,
        "model": model_config,
    }
    facts |= {"parameters": parameters.total, "parameters_of": asdict(parameters)}
    facts |= {"machine": describe(device), "available_bytes": available}
    if least > available:
        reason = ALONE.format(bytes_in_words(least))  # so fewer rows would not help
        return facts | {"fits": False, "reason": reason, "next": f"recollect plan {smaller(config).typed()}"}
    try:
        with fitting_threads(lambda text: None):  # as the training would compute
            return facts | _measured(config, task, task.build(model_config).to(device), dataset, seconds)
    except (RuntimeError, MemoryError) as error:
        if "allocate" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        return _refused(facts, config, str(error).splitlines()[0])


def forecast_shared(config: RunConfig, seconds: float, devices: int) -> JsonObject:
    """Return the estimate for one device's rows, and from it those for a training on several devices."""
    check_shared(config, devices)
    options: Any = config.options
    own = replace(config, options=replace(options, batch_size=options.batch_size // devices))
    facts = forecast(own, seconds)
    if facts["parameters"] == 0:
        raise SettingError(f"--devices: got {devices}, but {config.family} is fitted by counting, on one")
    started = f"torchrun --nproc-per-node {devices} -m recollect train {config.typed()}"
    size = 4 * facts["parameters"]  # float32
    divided = facts.get("state_bytes", 4 * size) / devices  # AdamW: weights, gradients, two moments
    shared: JsonObject = {"devices": devices, "rows_of_each": own.options.batch_size, "divided_bytes": divided}
    facts |= {"shared": shared, "next": started}
    if "updates" not in facts:
        return facts | {"reason": f"{facts['reason']}; with --set shard=true {bytes_in_words(divided)} on each device"}
    of_one = {name: facts.pop(name) for name in OF_ONE}  # that device's budget is not that of the training
    epoch = round(of_one["tokens"] / of_one["epochs"])
    training = config.training
    plan = training.plan(epoch)
    computing = facts["seconds_per_update"]
    read = of_one["tokens_per_second"] * computing * devices
    is_captured = training.capture and training.accumulate == 1 and choose_device(training.device).type == "cuda"
    how: dict[str, Any] = {"is_sharded": training.shard, "is_captured": is_captured, "batches": training.accumulate}
    for links in LINKS:
        each = update_seconds(computing, size, devices, links, **how)
        updates = updates_until_spent(plan.budget, read, each)
        evaluating = (math.ceil(updates / plan.evaluate_every) + 1) * facts["evaluation_seconds"]
        shared[links.name] = {
            "seconds_per_update": each,
            "tokens_per_second": read / each,
            "computing": computing / each,
            "updates": updates,
            "tokens": round(updates * read),
            "epochs": updates * read / epoch,
            "learning_seconds": updates * each,
            "seconds": updates * each + evaluating,
        }
    return facts


def _refused(facts: JsonObject, config: RunConfig, reason: str) -> JsonObject:
    options = config.options
    if hasattr(options, "batch_size"):
        config = replace(config, options=replace(options, batch_size=max(options.batch_size // 2, 1)))
    return facts | {"fits": False, "reason": reason, "next": f"recollect plan {config.typed()}"}


def _measured(config: RunConfig, task: Task, model: nn.Module, dataset: Dataset, seconds: float) -> JsonObject:
    device = choose_device(config.training.device)
    forget_peak(device)
    about = task.about(dataset, model)
    if counts(model):
        facts = _count_part(task, model, dataset, about.parts)
    else:
        facts = _train_briefly(config, task, start(config, task, model, dataset), dataset, about.parts, seconds)
    peak = peak_memory(device)
    facts |= {"memory_bytes": {str(read): count for read, count in about.memory.items()}, "peak_bytes": peak}
    return facts | {"fits": peak < available_memory(device), "next": f"recollect train {config.typed()}"}


def _count_part(task: Task, model: nn.Module, dataset: Dataset, parts: tuple[int, int, int]) -> JsonObject:
    """Count a part of the text, and assume the same speed for the rest."""
    begun = time.perf_counter()
    counted = task.fit(model, dataset, PART)
    counting = (time.perf_counter() - begun) / counted
    state = sum(buffer.nbytes for buffer in model.buffers())
    evaluating = _evaluation_seconds(task, model, dataset, parts[1])
    facts: JsonObject = {"tried_tokens": counted, "state_bytes": state, "tokens_per_second": 1 / counting}
    facts |= {"tokens": parts[0], "epochs": 1.0, "evaluations": 1, "evaluation_seconds": evaluating}
    learning = counting * parts[0]
    return facts | {"learning_seconds": learning, "seconds": learning + evaluating}


def _train_briefly(
    config: RunConfig, task: Task, state: TrainingState, dataset: Dataset, parts: tuple[int, int, int], seconds: float
) -> JsonObject:
    """Train for some seconds, and extrapolate to the whole budget."""
    epoch = state.batches.predicted
    source = iter(state.batches)
    plan = config.training.plan(epoch)
    for _ in range(WARM):
        update(state, source, plan, 0.0)
    before = state.progress
    begun = time.perf_counter()
    while state.progress.step < before.step + LEAST or time.perf_counter() - begun < seconds:
        update(state, source, plan, 0.0)
    passed = time.perf_counter() - begun
    count = state.progress.step - before.step
    read = state.progress.tokens - before.tokens
    weights = list(state.model.parameters())
    gradients = [p.grad for p in weights if p.grad is not None]
    held = sum(t.nbytes for t in (*weights, *gradients, *optimizer_tensors(state.optimizer).values()))
    facts: JsonObject = {"tried_updates": count, "tried_seconds": passed, "state_bytes": held}
    facts |= {"tokens_per_second": read / passed, "seconds_per_update": passed / count}
    updates = updates_until_spent(plan.budget, read / count, passed / count)
    evaluations = math.ceil(updates / plan.evaluate_every) + 1
    evaluating = _evaluation_seconds(task, state.model, dataset, parts[1])
    tokens = round(updates * read / count)
    facts |= {"updates": updates, "tokens": tokens, "epochs": tokens / epoch}
    facts |= {"evaluations": evaluations, "evaluation_seconds": evaluating}
    learning = updates * passed / count
    return facts | {"learning_seconds": learning, "seconds": learning + evaluations * evaluating}


def _evaluation_seconds(task: Task, model: nn.Module, dataset: Dataset, size: int) -> float:
    """Time the beginning of the validation part, and assume the same speed for the rest."""
    begun = time.perf_counter()
    task.measure(model, dataset, "valid", MEASURED)
    return (time.perf_counter() - begun) * size / max(min(size, MEASURED), 1)


def updates_until_spent(budget: TrainingBudget, tokens: float, seconds: float) -> int:
    """Return the number of updates, of so many symbols and seconds each, until a budget is spent."""
    share = budget.spent(Progress(step=1, tokens=round(tokens), seconds=seconds))
    return math.ceil(1 / share - 1e-9)


# ---- the table ---------------------------------------------------------------------------------------


def as_table(facts: JsonObject) -> Table:
    """Return a forecast as a table."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("model", f"{facts['family']}, {facts['size']}, {Parameters(**facts['parameters_of'])}")
    table.add_row("machine", facts["machine"])
    available = f"{bytes_in_words(facts['available_bytes'])} available"
    if "reason" in facts:
        table.add_row("fits", f"no: {facts['reason']}; {available}")
        return table
    answer = "yes" if facts["fits"] else "no"
    table.add_row("fits", f"{answer}: {bytes_in_words(facts['peak_bytes'])} at most while measuring, {available}")
    held = (
        "weights, gradients, optimiser" if "tried_updates" in facts else f"counts of {facts['tried_tokens']:,} tokens"
    )
    table.add_row(held, bytes_in_words(facts["state_bytes"]))
    for name, value in (_shared(facts) if "shared" in facts else _times(facts)).items():
        table.add_row(name, value)
    return table


def _shared(facts: JsonObject) -> dict[str, str]:
    """Return the rows of a forecast for several devices."""
    shared = facts["shared"]
    one = f"{facts['seconds_per_update'] * 1000:.1f} ms an update for {shared['rows_of_each']} rows on one, measured"
    rows = {f"{shared['devices']} devices": one}
    for links in LINKS:
        found = shared[links.name]
        rows[links.name] = (
            f"{found['tokens_per_second']:,.0f} tokens/s, {found['seconds_per_update'] * 1000:.1f} ms an update "
            f"({found['computing']:.0%} of it computing), {found['updates']:,} updates in "
            f"{time_in_words(found['seconds'])}, evaluations included; estimated"
        )
    held = f"{bytes_in_words(shared['divided_bytes'])} of weights, gradients, optimiser on each"
    rows["with --set shard=true"] = held
    return rows


def _times(facts: JsonObject) -> dict[str, str]:
    speed = f"{facts['tokens_per_second']:,.0f} tokens/s"
    budget = f"{facts['tokens']:,} tokens, {facts['epochs']:.2f} epochs"
    if "updates" in facts:
        speed += f", {facts['seconds_per_update'] * 1000:.1f} ms an update"
        budget = f"{facts['updates']:,} updates, {budget}"
    each = f"evaluations: {facts['evaluations']} of {facts['evaluation_seconds']:.1f} s"
    time = f"{time_in_words(facts['seconds'])}: {time_in_words(facts['learning_seconds'])} of training, {each}"
    kept = [f"{bytes_in_words(count)} after {int(n):,} tokens" for n, count in facts["memory_bytes"].items()]
    return {"speed": speed, "within the budget": budget, "time": time, "memory of one row": ", ".join(kept)}
