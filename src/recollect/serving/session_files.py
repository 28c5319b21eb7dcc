"""Saved sessions: a folder of memory files, locked for one server."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import IO

import torch
from torch import Tensor

from recollect.core.growing import Growing
from recollect.core.memory import Memory, static
from recollect.core.placement import same_layout, steps_read
from recollect.core.serialize import FileError, load_memory, save_memory
from recollect.serving.served import Served, named

SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False, kw_only=True)
class Kept(Memory):
    """What a session holds: the memory of one row, and the logits of the next symbol."""

    memory: Memory
    logits: Tensor  # (1, V)
    model: str = static("")
    weights: str = static("")  # checksum; empty until it is saved
    symbols: int = static(0)  # read so far
    tail: str = static("")  # the end of the text


class SessionFiles:
    """The folder of a server's saved sessions; its methods may be called from any thread."""

    def __init__(self, models: Sequence[Served], folder: Path) -> None:
        self.models = models
        self.folder = folder
        self._held = _locked(folder)
        self._lock = Lock()  # one file at a time

    def close(self) -> None:
        """Unlock the folder."""
        self._held.close()

    def names(self) -> list[str]:
        """Return the names of the sessions in the folder."""
        found = sorted(file.name.removesuffix(SUFFIX) for file in self.folder.glob(f"*{SUFFIX}"))
        return [name for name in found if is_name(name)]

    def has(self, name: str) -> bool:
        """Return whether a session is saved."""
        return is_name(name) and self._file(name).is_file()

    def save(self, name: str, kept: Kept) -> None:
        """Write a session, with the checksum of the weights that it belongs to."""
        weights = named(self.models, kept.model).weights
        with self._lock:
            save_memory(replace(kept, weights=weights), self._file(name))

    def load(self, name: str) -> Kept:
        """Read a session; raise a `FileError` for one that this server cannot continue."""
        path = self._file(name)
        with self._lock:
            kept = load_memory(path)
        if not isinstance(kept, Kept):
            raise FileError(f"{path}: a memory, but no session; save one with POST /v1/sessions/ID/save")
        model = self._model_of(kept, path)
        assert model.scheduler is not None
        return kept.to(model.scheduler.device)

    def delete(self, name: str) -> None:
        """Delete a session's file, where there is one."""
        with self._lock:
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        assert is_name(name)
        return self.folder / f"{name}{SUFFIX}"

    def _model_of(self, kept: Kept, path: Path) -> Served:
        try:
            model = named(self.models, kept.model)
        except KeyError as error:
            raise FileError(f"{path}: a session of another model; {error.args[0]}") from error
        if model.scheduler is None or model.weights != kept.weights:
            raise FileError(f"{path}: a session of other weights than {model.folder} has now; begin a new one")
        fresh = model.model.initial_memory(1, like=torch.zeros(1, 0, dtype=torch.long, device=model.scheduler.device))
        is_row = kept.logits.shape == (1, model.model.width_out) and kept.logits.is_floating_point()
        if not is_row or not same_layout(fresh, kept.memory) or not _is_consistent(kept.memory):
            raise FileError(f"{path}: its memory is not one that {model.name} writes; begin a new session")
        return model


def _is_consistent(memory: Memory) -> bool:
    """Return whether a memory of one row counts no more steps than it holds, and none below zero."""
    growing = [part for part in memory.within() if isinstance(part, Growing)]
    is_one = all(len(t) == 1 for t in memory.leaves())
    are_held = all(part.limit is not None or int(part.length.max()) <= part.slots for part in growing)
    are_plain = not any(part.reserved or part.in_place for part in growing)
    return is_one and are_held and are_plain and min(steps_read(memory), default=0) >= 0


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a session."""
    return len(name) == 32 and set(name) <= set("0123456789abcdef")


def _locked(folder: Path) -> IO[str]:
    """Return the open lock of a sessions folder; raise a `FileError` where another server has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise FileError(f"--sessions: {folder} cannot be written ({error.strerror or error})") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise FileError(f"--sessions: another server has {folder}; stop it, or name another folder") from error
    return file
