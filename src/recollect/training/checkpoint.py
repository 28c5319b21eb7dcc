"""A checkpoint: everything that a run needs to resume as if it had never stopped.

A folder with the weights, their running average where one is kept, the optimizer's tensors, the state of the random
number generator, the carried memory, and `state.json`, which holds the rest and the checksums of the others. It is
written under a temporary name and renamed when complete; a run resumes from the newest intact one. Of a sharded model
the folder `shards` holds weights and optimizer, one file of each process.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from recollect.core.memory import Memory
from recollect.core.serialize import (
    FileError,
    WriteFailed,
    load_memory,
    load_weights,
    read_tensors,
    save_memory,
    save_weights,
    write_file,
    write_tensors,
)
from recollect.core.types import JsonObject
from recollect.training import shard_files
from recollect.training.sharding import divided, is_divided

VERSION = 1
PREFIX = "step-"


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None  # lowest validation loss so far
    best_step: int | None = None
    evaluated: int | None = None  # the step of the latest evaluation
    worse: int = 0  # evaluations since the best
    setbacks: int = 0  # all evaluations that did not improve on the best


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    memory: Memory | None,
    progress: Progress,
    data_state: JsonObject,
    *,
    keep: int = 2,
    average: nn.Module | None = None,
    shards: Path | None = None,
) -> Path:
    """Write a checkpoint, then delete the oldest beyond `keep`; the best one is kept.

    `shards`: a folder with weights and optimizer, which all processes have written; it becomes part of the checkpoint.
    """
    final = folder / f"{PREFIX}{progress.step:08d}"
    beside = folder / f"{final.name}.new"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        if shards is not None:
            os.replace(shards, beside / shard_files.FOLDER)
        else:
            save_weights(model, beside / "model.safetensors")
            write_tensors(optimizer_tensors(optimizer), beside / "optimizer.safetensors", {})
        write_tensors({"torch": torch.get_rng_state()}, beside / "random.safetensors", {})
        if average is not None:
            save_weights(average, beside / "average.safetensors")
        if memory is not None:
            save_memory(memory, beside / "memory.safetensors")
        state = {"version": VERSION, "progress": vars(progress), "data": data_state, "files": _checksums(beside)}
        write_file(beside / "state.json", json.dumps(state).encode())
        _put_in_place(beside, final)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise WriteFailed(f"{error}. {what_is_left(folder)}") from error
    _delete_old(folder, keep, progress.best_step)
    return final


def _put_in_place(beside: Path, final: Path) -> None:
    """Rename a complete checkpoint to its name; one of the same step is renamed first, so that one always exists."""
    aside = final.with_name(f"{final.name}.old")
    if final.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(final, aside)
    os.replace(beside, final)
    shutil.rmtree(aside, ignore_errors=True)


def what_is_left(folder: Path) -> str:
    """Return, after a failed write, what the run can be resumed from, with the command."""
    try:
        intact, _ = newest_checkpoint(folder)
    except FileError:
        return f"There is no checkpoint yet. Start again with: recollect resume {folder.parent}"
    return f"The last checkpoint, {intact}, is intact. Resume with: recollect resume {folder.parent}"


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> tuple[Progress, JsonObject, Memory | None]:
    """Restore model, optimiser and random numbers; return the progress, the data's position and the carried memory."""
    state = read_state(path)
    load_trained(path, model)
    if optimizer is not None:
        load_optimizer(optimizer, _saved_optimizer(path, optimizer))
        torch.set_rng_state(read_tensors(path / "random.safetensors")[1]["torch"])
    carried = path / "memory.safetensors"
    memory = load_memory(carried) if carried.exists() else None
    return Progress(**state["progress"]), state["data"], memory


def load_result(path: Path, model: nn.Module) -> None:
    """Read the weights that a checkpoint was measured with: their running average where one was kept."""
    read_state(path)
    average = path / "average.safetensors"
    if average.exists():
        load_weights(model, average)
    else:
        load_trained(path, model)


def load_trained(path: Path, model: nn.Module) -> None:
    """Read the weights of a checkpoint; either of the two may be sharded."""
    shards = path / shard_files.FOLDER
    if shards.is_dir():
        shard_files.read_shards(shards, model.state_dict())
    elif any(is_divided(p) for p in model.parameters()):
        full = read_tensors(path / "model.safetensors")[1]
        state = model.state_dict()
        model.load_state_dict({name: divided(t, state[name]) if name in state else t for name, t in full.items()})
    else:
        load_weights(model, path / "model.safetensors")


def _saved_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Read an optimizer's tensors, divided as their parameters are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    shards = path / shard_files.FOLDER
    if not shards.is_dir():
        full = read_tensors(path / "optimizer.safetensors")[1]
        if not any(is_divided(p) for p in parameters):
            return full
        return {name: divided(t, parameters[int(name.partition(".")[0])]) for name, t in full.items()}
    tensors = {}
    for name, saved in shard_files.saved_in(shards).items():
        number = name.partition(".")[0]
        if number.isdigit():  # no weight's name begins with a number
            like = parameters[int(number)]
            is_divided_too = saved.shape == like.shape  # not so the count of its steps
            tensors[name] = torch.zeros_like(like) if is_divided_too else torch.zeros_like(saved, device="cpu")
    shard_files.read_shards(shards, tensors)
    return tensors


def newest_checkpoint(folder: Path) -> tuple[Path, list[str]]:
    """Return the newest intact checkpoint, and a notice for each damaged one that was skipped."""
    for aside in folder.glob(f"{PREFIX}????????.old"):  # renamed for one that was never completed
        if not aside.with_suffix("").exists():
            os.replace(aside, aside.with_suffix(""))
    notices = []
    for path in sorted(folder.glob(f"{PREFIX}????????"), reverse=True):
        try:
            read_state(path)
        except FileError as error:
            notices.append(f"{error}; the one before is used")
        else:
            return path, notices
    raise FileError(f"{folder}: no intact checkpoint; train again" + "".join(f" ({n})" for n in notices))


def read_state(path: Path) -> JsonObject:
    """Read a checkpoint's state; raise a `FileError` unless every file is intact."""
    try:
        state: JsonObject = json.loads((path / "state.json").read_text(encoding="utf-8"))
        files = state["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, its state cannot be read ({error})") from error
    if state.get("version") != VERSION:
        raise FileError(f"{path}: checkpoint of version {state.get('version')}, this version reads {VERSION}")
    if files != _checksums(path):
        raise FileError(f"{path}: damaged, a checksum does not match")
    return state


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors, named by parameter and kind; its settings are in the run's config."""
    named = {}
    for i, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is not None:
                named[f"{i}.{name}"] = torch.as_tensor(value).detach().clone().contiguous()
    return named


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the optimizer's tensors."""
    state = optimizer.state_dict()
    state["state"] = {}
    for name, value in tensors.items():
        i, _, kind = name.partition(".")
        state["state"].setdefault(int(i), {})[kind] = value
    optimizer.load_state_dict(state)


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(folder.rglob("*.safetensors"))
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def _delete_old(folder: Path, keep: int, best_step: int | None) -> None:
    complete = sorted(folder.glob(f"{PREFIX}????????"))
    for path in complete[:-keep]:
        if best_step is None or path.name != f"{PREFIX}{best_step:08d}":
            shutil.rmtree(path, ignore_errors=True)
    incomplete = (f"{PREFIX}????????.new", f"{PREFIX}????????.old", f"{shard_files.FOLDER}.new")
    for path in (path for pattern in incomplete for path in folder.glob(pattern)):
        shutil.rmtree(path, ignore_errors=True)  # left incomplete by a crash
