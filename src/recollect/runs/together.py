"""A run that several processes train together, as torchrun starts them: one writes its folder, the others follow.

Every machine must see the run's folder: each process reads the config and the checkpoints.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from recollect.core.launch import launched
from recollect.core.meta import on_meta
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError
from recollect.core.task import Task
from recollect.core.threads import fitting_threads
from recollect.core.types import JsonMapping
from recollect.data.error import silent
from recollect.data.names import split_names
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.training.sharding import check_divisible
from recollect.training.workers import Alone, is_lost_peer, join

PATIENT = 30.0  # seconds until a file that the first process wrote is seen by the others, on another machine


@contextmanager
def taking_part(config: RunConfig, run: Run, device: torch.device, *, is_new: bool) -> Iterator[Alone]:
    """Join the processes that train this run; the first locks the folder, the others print nothing.

    A new run needs a free place, but for one that torchrun restarts before its config was written.
    """
    check_shared(config, launched().size)
    workers = join(device, config.training.seed)
    if not workers.is_first:
        run.notice = silent
    elif is_new and not (workers.launch.restarts and (run.folder / ".lock").exists()):
        run.check_place()
    with run.lock() if workers.is_first else nullcontext(), fitting_threads(run.notice):
        try:
            yield workers
            workers.wait()  # now the run is complete for all
        except RuntimeError as error:
            if workers.size == 1 or not is_lost_peer(error):
                raise
            again = f"torchrun --nproc-per-node {workers.size} -m {run.command('resume')}"
            raise RuntimeError(
                f"{run.folder}: another process of this training is lost; the newest checkpoint is resumed by torchrun "
                f"where it was started with --max-restarts, else by: {again}"
            ) from error


def check_shared(config: RunConfig, size: int) -> None:
    """Raise a `SettingError` for what several processes cannot share: standard input, an indivisible batch.

    And for settings that a sharded model does not have, in any number of processes: it may resume in several.
    """
    if config.training.shard:
        check_sharded(config)
    if size == 1:
        return
    if "-" in split_names(config.data):
        raise SettingError(f"DATA: got -, expected a file or a built-in: each of the {size} processes reads it")
    rows = getattr(config.options, "batch_size", None)
    if rows is not None and rows % size:
        near = " or ".join(str(n) for n in (rows // size * size, -(-rows // size) * size) if n)
        raise SettingError(f"--batch: got {rows} rows for {size} processes, expected a multiple of {size}; try: {near}")


def check_sharded(config: RunConfig) -> None:
    """Raise a `SettingError` for what needs the whole model in each process."""
    training = config.training
    for name, is_given in {"average": training.average > 0, "compile": training.compile}.items():
        if is_given:
            got = json.dumps(getattr(training, name))
            raise SettingError(f"{name}: got {got} with shard=true, which it does not work with; leave one of them out")
    if config.transfer is not None:
        raise SettingError(
            "shard: got true, but fine-tuning begins from a whole model in each process; leave it out: several "
            "processes fine-tune copies of one model"
        )


def check_model(task: Task, model: JsonMapping, workers: Alone, *, is_sharded: bool) -> None:
    """Raise a `SettingError` for a model that several processes cannot train, before a run is made."""
    if workers.size == 1:
        return
    with on_meta():
        planned = task.build(model)
    if not any(True for _ in planned.parameters()):
        family = model.get("family", "the model")
        raise SettingError(f"model: {family} is fitted by counting, in one process; train it without torchrun")
    if is_sharded:
        check_divisible(planned)


def create(run: Run, workers: Alone, *contents: Any) -> None:
    """Create the folder in the first process, and wait in the others until they see it."""
    if workers.is_first:
        run.create(*contents)
    workers.wait()
    limit = time.monotonic() + PATIENT
    while not (run.folder / "config.json").exists():
        if time.monotonic() > limit:
            raise FileError(
                f"{run.folder}: process {workers.launch.rank} does not see it; choose an --out on a file system that "
                "all machines share"
            )
        time.sleep(0.1)


def check_out(out: str | Path | None) -> None:
    """Raise a `SettingError` for a folder without a name."""
    if out == "":
        raise SettingError('--out: got "", expected the name of a folder, as in --out runs/run')


@contextmanager
def discarded_if_refused(run: Run, workers: Alone) -> Iterator[None]:
    """Delete what was written of a new run that cannot be started: resuming it would fail in the same way."""
    try:
        yield
    except Exception:
        if workers.is_first:
            run.discard()
        raise


def is_restarted(run: Run) -> bool:
    """Return whether torchrun has started the processes of this run again: they resume it."""
    return launched().restarts > 0 and (run.folder / "config.json").exists()
