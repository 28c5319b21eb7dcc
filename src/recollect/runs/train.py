"""From DATA and a family's name to a trained run, and on from where one stopped: what the verbs of training do."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

import torch

from recollect.core.machine import choose_device
from recollect.core.serialize import WriteFailed
from recollect.data.error import DataError
from recollect.data.text.corpus import Corpus
from recollect.models.language import LanguageModel
from recollect.runs.card import write_card
from recollect.runs.config import Recipe
from recollect.runs.log import Journal, check_tensorboard, open_tensorboard
from recollect.runs.run import Run
from recollect.tasks import task_named
from recollect.training.checkpoint import load_checkpoint, newest_checkpoint, what_is_left
from recollect.training.loop import count_symbols, go_on, train
from recollect.training.state import Diverged, Trainee

Report = Callable[[dict[str, Any]], None]


def begin(recipe: Recipe, run: Run, report: Report) -> bool:
    """Train a new run; say whether its budget was spent."""
    device, task = choose_device(recipe.device), task_named(recipe.task)
    if recipe.tensorboard:
        check_tensorboard()
    with run.lock():
        data = task.open(recipe)
        torch.manual_seed(recipe.seed)
        run.create(task.config(recipe, data), task.tokenizers(data), asdict(recipe), data.name)
        model = run.build()
        if recipe.family == "markov":
            return _count(recipe, run, model, data, report)
        return _learn(recipe, run, enrol(recipe, model.to(device), data), data, report)


def resume(run: Run, report: Report, notice: Callable[[str], None], device: str | None = None) -> bool:
    """Go on with a run where it stopped, on another device if asked; say whether its budget was spent."""
    recipe = Recipe(**run.config()["training"])
    place = choose_device(device or recipe.device)
    with run.lock():
        data = data_of(run, recipe)
        torch.manual_seed(recipe.seed)  # for a run that stopped before its first checkpoint, and begins again
        model = run.build()
        if recipe.family == "markov":
            return _count(recipe, run, model, data, report)
        trainee = enrol(recipe, model.to(place), data)
        if any(run.checkpoints.glob("step-????????*")):
            for text in go_on(trainee, run.checkpoints):
                notice(text)
        run.cut_log(trainee.progress.step)
        return _learn(recipe, run, trainee, data, report)


def data_of(run: Run, recipe: Recipe) -> Any:
    """Give the data that a run was begun on: from the cache, else read again, if it is still the same."""
    task, name = task_named(recipe.task), run.config()["data"]
    data = task.reopen(name)
    if data is None and recipe.data == "-":
        raise DataError(f"{run.folder}: its text came from standard input and is not kept any more; train a new run")
    data = data or task.open(recipe)
    if data.name != name:
        raise DataError(f"{recipe.data}: not the text that {run.folder} was begun on; put that back or train a new run")
    return data


def enrol(recipe: Recipe, model: Any, data: Any) -> Trainee:
    """Give the model what it learns from, and its optimiser."""
    batches = task_named(recipe.task).batches(recipe, data, model)
    compiled = torch.compile(model) if recipe.compile else None
    return Trainee(model, batches, recipe.optimise().build(model), compiled=compiled)


def _count(recipe: Recipe, run: Run, model: LanguageModel, corpus: Corpus, report: Report) -> bool:
    task = task_named(recipe.task)
    count_symbols(model, corpus.train, ends=corpus.ends["train"])
    loss = task.validate(recipe, corpus)(model)
    Journal(run, task.sampler(corpus), report).note({"step": 0, "valid_loss": loss}, model, share=1.0, best=loss)
    run.finish(model)
    write_card(run, model, task.about(corpus, model), torch.device("cpu"))
    return True


def _learn(recipe: Recipe, run: Run, trainee: Trainee, data: Any, report: Report) -> bool:
    plan, model, task = recipe.plan(trainee.batches.predicted), trainee.model, task_named(recipe.task)
    scalars = open_tensorboard(run.folder, trainee.progress.step) if recipe.tensorboard else None

    def log(row: dict[str, Any]) -> None:
        done, carried = trainee.progress, None if trainee.memory is None else trainee.memory.nbytes
        journal.note(row, model, share=plan.budget.spent(done), best=done.best, memory_bytes=carried)

    with closing(Journal(run, task.sampler(data), report, scalars)) as journal, _asked_to_stop() as is_stopped:
        try:
            is_spent = train(trainee, plan, task.validate(recipe, data), run.checkpoints, log, is_stopped)
            keep_best(trainee, run)
            write_card(run, model, task.about(data, model), next(model.parameters()).device)
        except Diverged as error:
            raise _with_advice(error, recipe, run) from error
        except OSError as error:
            raise _on_disk(error, run) from error
    return is_spent


def _on_disk(error: OSError, run: Run) -> Exception:
    """Say what could not be written, and what is left."""
    left = what_is_left(run.checkpoints)
    words = str(error) if isinstance(error, WriteFailed) else f"{run.folder}: cannot be written ({error.strerror})"
    return WriteFailed(words if left in words else f"{words}. {left}")


def _with_advice(error: Diverged, recipe: Recipe, run: Run) -> Diverged:
    good, _ = newest_checkpoint(run.checkpoints)
    words = ["recollect", "train", recipe.data, "-m", recipe.family, "--set", f"rate={recipe.rate / 3:.1g}"]
    again = shlex.join([*words, "--out", f"{run.folder}-2"])
    return Diverged(f"{error}. The last good checkpoint is {good}. Try: {again}")


def keep_best(trainee: Trainee, run: Run) -> None:
    """Make the weights of the lowest validation loss the run's result."""
    best = run.build()
    load_checkpoint(run.checkpoints / f"step-{trainee.progress.best_step:08d}", best)
    run.finish(best)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C into a question that training asks between two updates, so that no update is cut in half."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
