"""What `recollect plan` does: will it fit, and how long will it take, on this machine; by two seconds of trying it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from recollect.core.machine import available_memory, choose_device, describe, forget_peak, peak_memory
from recollect.data.text.corpus import Corpus
from recollect.models.language import LanguageModel, count_parameters
from recollect.runs.card import typed
from recollect.runs.config import Recipe
from recollect.runs.progress import bytes_in_words, time_in_words
from recollect.runs.train import enrol
from recollect.tasks.language import LanguageTask, bytes_after
from recollect.training.checkpoint import Progress, optimiser_tensors
from recollect.training.loop import count_symbols, update, validation_loss
from recollect.training.state import Budget, Trainee

WARM = 2  # updates before the clock starts: the first ones allocate
LEAST = 3  # updates that are timed, at least
PART = 200_000  # symbols that a counting model is tried on
REMEMBERED = (1_000, 16_000)  # symbols


def forecast(recipe: Recipe, seconds: float = 2.0) -> dict[str, Any]:
    """Try a fresh model on the real data, and say what the whole of the training would take; nothing is kept."""
    if recipe.task != "language":
        raise ValueError(f"plan: got the task {recipe.task!r}, expected language; try: recollect train --budget 10s")
    device, corpus = choose_device(recipe.device), LanguageTask().open(recipe)
    torch.manual_seed(recipe.seed)
    config = recipe.language_model(corpus.tokenizer.vocab_size)
    count = count_parameters(config)
    room, least = available_memory(device), count * 2 * 4  # weights and gradients in float32
    facts: dict[str, Any] = {"data": recipe.data, "family": recipe.family, "size": recipe.size, "parameters": count}
    facts |= {"machine": describe(device), "available_bytes": room}
    if least > room:
        return _refused(facts, recipe, f"weights and gradients alone take {bytes_in_words(least)}")
    try:
        return facts | _tried(recipe, LanguageModel(config), corpus, device, seconds)
    except (RuntimeError, MemoryError) as error:
        if "allocate" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        return _refused(facts, recipe, str(error).splitlines()[0])


def _refused(facts: dict[str, Any], recipe: Recipe, reason: str) -> dict[str, Any]:
    smaller = f"recollect plan {typed(replace(recipe, batch_size=max(recipe.batch_size // 2, 1)))}"
    return facts | {"fits": False, "reason": reason, "next": smaller}


def _tried(
    recipe: Recipe, model: LanguageModel, corpus: Corpus, device: torch.device, seconds: float
) -> dict[str, Any]:
    forget_peak(device)
    if recipe.family == "markov":
        facts = _count_part(model, corpus, recipe)
    else:
        facts = _learn_a_while(recipe, enrol(recipe, model.to(device), corpus), corpus, seconds)
    table = model.config.max_length  # of learned positions: nothing is read beyond it
    memory = {str(n): bytes_after(model, n) for n in (min(steps, table or steps) for steps in REMEMBERED)}
    peak = peak_memory(device)
    fits = peak < available_memory(device)
    facts |= {"memory_bytes": memory, "peak_bytes": peak, "fits": fits}
    return facts | {"next": f"recollect train {typed(recipe)}"}


def _count_part(model: LanguageModel, corpus: Corpus, recipe: Recipe) -> dict[str, Any]:
    """Count a part of the text, and take it that the rest goes as fast."""
    part, ends = _beginning(corpus.train, corpus.ends["train"], PART)
    counting = _timed(lambda: count_symbols(model, part, ends=ends)) / len(part)
    state = sum(buffer.nbytes for buffer in model.buffers())
    evaluating = _evaluation_seconds(model, corpus, recipe.steps)
    facts: dict[str, Any] = {"tried_tokens": len(part), "state_bytes": state, "tokens_per_second": 1 / counting}
    facts |= {"tokens": len(corpus.train), "epochs": 1.0, "evaluations": 1, "evaluation_seconds": evaluating}
    learning = counting * len(corpus.train)
    return facts | {"learning_seconds": learning, "seconds": learning + evaluating}


def _learn_a_while(recipe: Recipe, trainee: Trainee, corpus: Corpus, seconds: float) -> dict[str, Any]:
    """Make real updates for some seconds, and go on in thought until the budget is spent."""
    epoch, source = trainee.batches.predicted, iter(trainee.batches)
    plan = recipe.plan(epoch)
    for _ in range(WARM):
        update(trainee, source, plan, 0.0)
    start, begun = trainee.progress, time.perf_counter()
    while trainee.progress.step < start.step + LEAST or time.perf_counter() - begun < seconds:
        update(trainee, source, plan, 0.0)
    passed, done = time.perf_counter() - begun, trainee.progress
    count, read = done.step - start.step, done.tokens - start.tokens
    facts = {"tried_updates": count, "tried_seconds": passed, "state_bytes": _state_bytes(trainee)}
    facts |= {"tokens_per_second": read / passed, "seconds_per_update": passed / count}
    updates = updates_until_spent(plan.budget, read / count, passed / count)
    evaluations = math.ceil(updates / plan.evaluate_every) + 1
    evaluating = _evaluation_seconds(trainee.model, corpus, recipe.steps)
    tokens = round(updates * read / count)
    facts |= {"updates": updates, "tokens": tokens, "epochs": tokens / epoch}
    facts |= {"evaluations": evaluations, "evaluation_seconds": evaluating}
    learning = updates * passed / count
    return facts | {"learning_seconds": learning, "seconds": learning + evaluations * evaluating}


def updates_until_spent(budget: Budget, tokens: float, seconds: float) -> int:
    """Give the number of updates, of so many symbols and seconds each, that a budget buys."""
    share = budget.spent(Progress(step=1, tokens=round(tokens), seconds=seconds))
    return math.ceil(1 / share - 1e-9)


def _evaluation_seconds(model: LanguageModel, corpus: Corpus, steps: int) -> float:
    """Score the beginning of the validation text, and take it that the rest goes as fast."""
    part, ends = _beginning(corpus.valid, corpus.ends["valid"], 32 * steps + 1)
    return _timed(lambda: validation_loss(model, part, steps, ends)) * len(corpus.valid) / max(len(part), 1)


def _beginning(ids: NDArray[Any], ends: NDArray[np.int64], size: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Give the first symbols of a text, and where documents end among them."""
    size = min(size, len(ids))
    return ids[:size], np.append(ends[ends < size], size)


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _state_bytes(trainee: Trainee) -> int:
    """Weights, gradients and what the optimiser keeps."""
    weights = list(trainee.model.parameters())
    held = [*weights, *(p.grad for p in weights if p.grad is not None), *optimiser_tensors(trainee.optimiser).values()]
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
