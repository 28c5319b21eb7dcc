"""`train` and `resume`: from data and a model's name to a trained run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from recollect.core.errors import is_own
from recollect.core.machine import choose_device
from recollect.core.serialize import FileError, WriteFailed, load_weights
from recollect.core.settings import SettingError
from recollect.core.task import Dataset, Task
from recollect.core.threads import pace
from recollect.core.types import JsonObject
from recollect.data.error import silent
from recollect.data.names import Named, join_names, split_names
from recollect.data.text.source import to_stderr
from recollect.laws.check import LawBroken, check_layer
from recollect.models.own import MakeLayer, OwnCodeError, load_name, make_own, register_layer
from recollect.models.parameters import count_apart
from recollect.runs.budget import parse_budget, with_budget
from recollect.runs.capacity import check_memory
from recollect.runs.card import write_card
from recollect.runs.config import RunConfig
from recollect.runs.interrupts import asked_to_stop, remembered
from recollect.runs.log import RunLog, check_tensorboard, open_tensorboard
from recollect.runs.progress import is_evaluation
from recollect.runs.run import Run
from recollect.runs.together import check_model, check_out, create, discarded_if_refused, is_restarted, taking_part
from recollect.tasks.register import guess_task, register_task, task_named
from recollect.training.average import average_of
from recollect.training.checkpoint import newest_checkpoint, what_is_left
from recollect.training.loop import restore, train as run_loop
from recollect.training.sharding import in_lockstep, shard
from recollect.training.state import Diverged, TrainingState
from recollect.training.transfer import Transfer
from recollect.training.workers import ALONE, Alone

Report: TypeAlias = Callable[[JsonObject], None]
VOCABULARIES = {"vocab_size": "vocabulary", "source_vocab": "source vocabulary", "target_vocab": "target vocabulary"}
SHAPE = {"width": "width", "hidden": "hidden", "layers": "layers", "order": "order", **VOCABULARIES}
CHECKED_WIDTH = 8  # of a user-defined layer, when it is checked by the laws
_passed: set[tuple[str, bytes]] = set()  # layers that have passed the laws, with their source


def train(
    data: Named,
    *,
    task: str | type[Task] | None = None,
    model: str | MakeLayer | None = None,
    size: str = "tiny",
    budget: str = "60s",
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    report: Report | None = None,
    **settings: Any,
) -> Run:
    """Train a model on data and return the run, which is a folder.

    data: a file, a folder, a glob, - or the name of a built-in, or a list of files, folders and globs; two parallel
    files are pairs of a source and a target. task: by default the one that the data are for.
    model: a family's name (see `recollect models`), or a user-defined layer: a class or function from a width to a
    SequenceLayer, which must pass `check_layer`. budget: 30s, 5m, 2000steps, 1000000tokens or 3epochs. settings: as
    those of `--set`; one that nothing uses raises an error. report: called with every row of metrics; where it raises
    BrokenPipeError, training stops as at Ctrl-C, and the run can be resumed.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> run = rc.train("recall:count=200", model="gru", budget="2steps", out=folder, width=16, batch_size=2)
    >>> run.model.config.family
    'gru'
    """
    check_out(out)
    config = configure(data, task=task, model=model, size=size, budget=budget, seed=seed, device=device, **settings)
    run = Run(out or f"runs/{config.family.rpartition(':')[2]}", device)
    if is_restarted(run):
        resume(run, report or (lambda row: None), run.notice)
    else:
        begin(config, run, report or (lambda row: None), run.notice)
    return run


def configure(
    data: Named,
    *,
    task: str | type[Task] | None = None,
    model: str | MakeLayer | None = None,
    size: str = "tiny",
    budget: str = "60s",
    **settings: Any,
) -> RunConfig:
    """Return the checked config of a run; user-defined classes, or those of given files, are registered by name."""
    named = join_names(data)
    name = task_for(named, task)
    if isinstance(model, str) and is_own(model):
        model = register_layer(load_name(model), model)
    elif not isinstance(model, str | None):
        model = register_layer(model)
    config = RunConfig.make(named, model, size, task=name, **with_budget(budget, settings))
    if is_own(config.family):
        check_own(config.family)
    return config


def task_for(named: str, task: str | type[Task] | None) -> str:
    """Return a task's name: a user-defined one is registered; where none is given, it is the one the data are for."""
    if task is None:
        return guess_task(named, to_stderr)
    if not isinstance(task, str):
        return register_task(task)
    return register_task(load_name(task), task) if is_own(task) else task


def check_own(name: str) -> None:
    """Try the laws on a layer of one's own; raise LawBroken, or OwnCodeError where it cannot even read.

    A comparison asks often: a file whose layer has passed is not tried again before it changes.
    """
    file = Path(name.rpartition(":")[0])
    source = (name, file.read_bytes()) if file.suffix == ".py" and file.is_file() else None
    if source is not None and source in _passed:
        return
    layer = make_own(name, CHECKED_WIDTH).double()
    try:
        check_layer(layer)
    except LawBroken as error:
        raise LawBroken(error.law, f"{name}: {error.detail}", error.example) from error
    except Exception as error:
        raise OwnCodeError(f"{name}: fails while it reads ({type(error).__name__}: {error})") from error
    if source is not None:
        _passed.add(source)


def begin(config: RunConfig, run: Run, report: Report, notice: Callable[[str], None] = lambda text: None) -> bool:
    """Train a new run, whose shape is told first; return whether its budget was spent."""
    device = choose_device(config.training.device)
    if config.training.tensorboard:
        check_tensorboard()
    with taking_part(config, run, device, is_new=True) as workers, remembered():
        task = config.make_task()
        dataset = workers.in_turn(lambda: task.open(config.data))
        torch.manual_seed(config.training.seed)
        model_config = task.config(config.family, config.size, dataset, config.settings)
        check_model(task, asdict(model_config), workers, is_sharded=config.training.shard)
        check_memory(config, task, asdict(model_config), device)
        create(run, workers, config, model_config, task.assets(dataset), dataset.name)
        try:
            with discarded_if_refused(run, workers):
                model = run.build().to(device)
                if workers.is_first:
                    notice(shape_in_words(config, model))
                if counts(model):
                    return _count(run, model, dataset, report)
                state = start(config, task, model, dataset, workers)
            return learn(config, run, state, dataset, report)
        except KeyboardInterrupt:  # before or after the training loop, which stops at Ctrl-C between two updates
            run.is_spent = False
            return False


def resume(
    run: Run, report: Report, notice: Callable[[str], None], device: str | None = None, budget: str | None = None
) -> bool:
    """Resume a run where it stopped, on another device if given; return whether its budget was spent.

    `budget` is added to what is spent; without it, a finished run is reported as finished.
    """
    config = run.config()
    target = choose_device(device or config.training.device)
    with taking_part(config, run, target, is_new=False) as workers, remembered():
        notice = notice if workers.is_first else silent
        dataset = workers.in_turn(run.dataset)
        torch.manual_seed(config.training.seed)  # for a run that stopped before its first checkpoint, and starts again
        model = run.build()
        is_begun = any(run.checkpoints.glob("step-????????*"))
        if config.transfer is not None:
            adopt_again(config.transfer, model, is_begun=is_begun)
            run.prepare(model)
        model = model.to(target)
        if counts(model):
            return _count_again(run, model, dataset, report, notice, budget)
        state = start(config, run.task, model, dataset, workers)
        for text in restore(state, run.checkpoints) if is_begun else ["no checkpoint: training starts from step 0"]:
            notice(text)
        if workers.is_first:
            run.cut_log(state.progress.step)
        if budget is not None:  # only now: what is refused above leaves the run as it was
            if workers.is_first:
                run.extend(parse_budget(budget))
            workers.wait()
            config = run.config()
        if config.training.budget(state.batches.predicted).spent(state.progress) >= 1:
            notice(f"finished: its budget is spent. Train it further with: {run.command('resume')} --budget 5m")
        return learn(config, run, state, dataset, report)


def adopt_again(transfer: Transfer, model: Any, *, is_begun: bool) -> None:
    """Copy the parent's weights into a run that stopped before its first checkpoint; raise where they have changed."""
    if is_begun:
        return
    parent = import_module("recollect.runs.parent").open_parent(transfer.parent)
    if parent.digest != transfer.digest:
        raise FileError(f"{transfer.parent}: not the weights that the run was started from; train a new run")
    model.adopt(parent.model)


def shape_in_words(config: RunConfig, model: nn.Module) -> str:
    """Return a model's family, size, width, layers, vocabulary and parameters in one line."""
    used = {*task_named(config.task).settings(config.family), *VOCABULARIES}
    shape = getattr(model, "config", None)
    values = {title: getattr(shape, name, None) for name, title in SHAPE.items() if name in used}
    words = [f"{title} {value:,}" for title, value in values.items() if value is not None]
    return f"{config.family}, {config.size}: {', '.join([*words, str(count_apart(model))])}"


def counts(model: nn.Module) -> bool:
    """Return whether a model has no parameters and is fitted by counting."""
    return not any(True for _ in model.parameters())


def start(config: RunConfig, task: Task, model: nn.Module, dataset: Dataset, workers: Alone = ALONE) -> TrainingState:
    """Return the state of a training before its first update; what a model also counts is counted here."""
    if getattr(model, "counts_first", False):
        task.fit(model, dataset)
    batches = task.batches(dataset, model, config.training.seed)
    compiled = torch.compile(task.loss.__call__) if config.training.compile else None  # the model is traced with it
    average = average_of(model) if config.training.average else None
    groups = None if config.transfer is None else config.transfer.groups(model)
    is_sharded = config.training.shard and workers.size > 1
    network = shard(model, workers.size) if is_sharded else None  # before the optimizer, which is sharded with it
    optimizer = config.training.optimizer().build(model, groups)
    return TrainingState(
        model,
        batches,
        optimizer,
        task.loss,
        average=average,
        compiled=compiled,
        workers=workers,
        network=network,
        is_sharded=is_sharded,
    )


def _count(run: Run, model: nn.Module, dataset: Dataset, report: Report) -> bool:
    begun = time.perf_counter()
    run.task.fit(model, dataset)
    seconds = round(time.perf_counter() - begun, 6)
    scores = run.task.measure(model, dataset, "valid")
    row = {"step": 0, "seconds": seconds, f"valid_{scores.decisive}": scores.value}
    row |= {f"valid_{name}": value for name, value in next(iter(scores.rows.values())).items()}
    RunLog(run, partial(run.task.sample, dataset=dataset), report).add(row, model, share=1.0, best=scores.value)
    run.finish(model)
    write_card(run, model, run.task.about(dataset, model), torch.device("cpu"), best_step=0)
    run.is_spent = True
    return True


def _count_again(
    run: Run, model: nn.Module, dataset: Dataset, report: Report, notice: Callable[[str], None], budget: str | None
) -> bool:
    """Count what was stopped before it was counted; a counted run is finished."""
    family = run.config().family
    if budget is not None:
        got = f"--budget: got {budget}, but {family} counts its data once and cannot be trained further"
        raise SettingError(f"{got}; leave it out")
    try:
        load_weights(run.build(), run.folder / "model.safetensors")
    except FileError:
        return _count(run, model, dataset, report)
    notice(f"finished: {family} has counted its data, and is not trained further")
    run.is_spent = True
    return True


def learn(config: RunConfig, run: Run, state: TrainingState, dataset: Dataset, report: Report) -> bool:
    """Train until the budget is spent, save the result and write the card; return whether it was spent.

    Of several processes the first does so; the others only take part in the updates.
    """
    task = run.task
    model = state.model
    if config.transfer is not None and config.transfer.frozen:
        dataset = with_features(config, task, state, dataset)
    plan = config.training.plan(state.batches.predicted)
    if config.transfer is not None and config.transfer.is_partial:
        plan = replace(plan, capture=False)  # which weights are trained changes
    validate = partial(task.measure, dataset=dataset, split="valid")
    sample = partial(task.sample, dataset=dataset)
    if state.is_sharded:
        sample = partial(_sample_in_lockstep, state, sample)
    if not state.workers.is_first:

        def follow(row: JsonObject) -> None:
            if state.is_sharded and is_evaluation(row):
                sample(model)  # the first process does, and needs all

        with asked_to_stop() as is_stopped:
            run.is_spent = run_loop(state, plan, validate, run.checkpoints, follow, is_stopped)
        return run.is_spent
    scalars = open_tensorboard(run.folder, state.progress.step) if config.training.tensorboard else None
    log = RunLog(run, sample, report, scalars)

    def note(row: JsonObject) -> None:
        pace()
        done = state.progress
        carried = None if state.memory is None else state.memory.nbytes * state.workers.size
        log.add(row, state.result, share=plan.budget.spent(done), best=done.best, memory_bytes=carried)

    with closing(log), asked_to_stop() as is_stopped:
        try:
            is_spent = run_loop(state, plan, validate, run.checkpoints, note, lambda: is_stopped() or not log.is_heard)
            keep_best(state, run)
            device = next(model.parameters()).device
            shown = run.model if state.is_sharded else model
            write_card(run, shown, task.about(dataset, shown), device, state.progress.best_step or 0)
        except Diverged as error:
            intact, _ = newest_checkpoint(run.checkpoints)
            rate = f"rate={config.training.rate / 3:.1g}"
            words = ["recollect", "train", *split_names(config.data), "-m", config.family]
            if config.transfer is not None:
                words = [
                    "recollect",
                    "finetune",
                    config.transfer.parent,
                    *split_names(config.data),
                    "--task",
                    config.task,
                ]
            words += ["--set", rate, "--out", f"{run.folder}-2"]
            raise Diverged(f"{error}. The last good checkpoint is {intact}. Try: {shlex.join(words)}") from error
        except OSError as error:
            left = what_is_left(run.checkpoints)
            is_known = isinstance(error, WriteFailed)
            text = str(error) if is_known else f"{run.folder}: cannot be written ({error.strerror})"
            raise WriteFailed(text if left in text else f"{text}. {left}") from error
    run.is_spent = is_spent
    return is_spent


def _sample_in_lockstep(
    state: TrainingState, sample: Callable[[nn.Module], tuple[str, str]], model: nn.Module
) -> tuple[str, str]:
    return in_lockstep(state.network, sample)


def with_features(config: RunConfig, task: Any, state: TrainingState, dataset: Any) -> Any:
    """Return the data with what a frozen body makes of them, where the task can compute it once; the batches too."""
    made = getattr(task, "with_features", None)
    is_alone = state.workers.size == 1 and not state.is_sharded
    found = made(state.model, dataset) if made is not None and is_alone else dataset
    if found is not dataset:
        place = state.batches.state()
        state.batches = task.batches(found, state.model, config.training.seed)
        state.batches.load_state(place)
    return found


def keep_best(state: TrainingState, run: Run) -> None:
    """Save the weights of the best validation score as the run's result; tell where they are those at the start."""
    if state.progress.evaluated and not state.progress.best_step:
        first = "no evaluation was better than that before the first update: the result is the model as it began"
        run.notice(f"{first}. Train it further with: {run.command('resume')} --budget 5m")
    best = state.progress.best_step or 0
    run.finish(run.read_result(run.checkpoints / f"step-{best:08d}"), best)
