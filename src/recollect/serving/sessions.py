"""Sessions: memories that a server keeps. What was read is never read again, however long it was.

A memory is a value, so a fork is the same memory under another name, and a session that is being continued still has
its last state until the continuation ends. Saved sessions are memory files: safetensors with a checksum.
"""

from __future__ import annotations

import fcntl
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from recollect.core.growing import Growing
from recollect.core.memory import Memory, static
from recollect.core.placement import same_layout, steps_read
from recollect.core.serialize import FileError, load_memory, save_memory
from recollect.serving.served import Served, named

TAIL = 64  # characters of the text that are kept: a decoder looks at the last ones
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


@dataclass(eq=False)
class Session:
    """A named memory."""

    id: str
    kept: Kept
    created: int = field(default_factory=lambda: int(time.time()))
    is_busy: bool = False  # being continued
    is_saved: bool = False  # as it is now

    def as_json(self) -> dict[str, Any]:
        """Return the entry of /v1/sessions."""
        facts = {"model": self.kept.model, "symbols": self.kept.symbols, "bytes": self.kept.nbytes}
        return {"id": self.id, "object": "session", "created": self.created, **facts, "saved": self.is_saved}


class Unknown(KeyError):
    """There is no such session."""


class Busy(RuntimeError):
    """A session is being continued by another request."""


class NoRoom(RuntimeError):
    """The sessions take as many bytes as they may."""


class Sessions:
    """The sessions of a server, in one thread; `folder` is where they are saved, and locked for this server."""

    def __init__(self, models: Sequence[Served], folder: Path | None = None, most_bytes: int = 2**30) -> None:
        self.models = models
        self.folder = folder
        self.most_bytes = most_bytes
        self.by_id: dict[str, Session] = {}
        self._lock = ExitStack()
        if folder is not None:
            self._lock.enter_context(_locked(folder))

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()

    @property
    def nbytes(self) -> int:
        """Bytes of all sessions; what forks share is counted once."""
        tensors = {id(t): t for one in self.by_id.values() for t in one.kept.leaves()}
        return sum(t.nbytes for t in tensors.values())

    # ---- one session -----------------------------------------------------------------------------

    def get(self, name: str) -> Session:
        """Return a session."""
        if name not in self.by_id:
            hint = "; it is saved, load it first" if name in self.saved() else ""
            raise Unknown(f"session: got {name!r}, which there is not{hint}")
        return self.by_id[name]

    def add(self, kept: Kept) -> Session:
        """Keep a memory as a new session."""
        self.check_room()
        session = Session(secrets.token_hex(16), kept)
        self.by_id[session.id] = session
        return session

    def begin(self, name: str) -> Session:
        """Mark a session as being continued; raise `Busy` where it is already."""
        session = self.get(name)
        self._check_idle(session)
        session.is_busy = True
        return session

    def finish(self, session: Session, kept: Kept | None) -> None:
        """Replace what a session holds; None: leave it as it was."""
        session.is_busy = False
        if kept is not None:
            session.kept = kept
            session.is_saved = False

    def fork(self, name: str) -> Session:
        """Return a new session that remembers the same; tensors are shared until either is continued."""
        kept = self.get(name).kept
        session = Session(secrets.token_hex(16), kept)
        self.by_id[session.id] = session
        return session

    def delete(self, name: str) -> None:
        """Forget a session, and delete its file."""
        is_saved = name in self.saved()
        if name in self.by_id:
            self._check_idle(self.by_id[name])
            del self.by_id[name]
        elif not is_saved:
            self.get(name)  # raises
        if is_saved:
            self._file(name).unlink(missing_ok=True)

    def check_room(self) -> None:
        """Raise `NoRoom` where the sessions take as many bytes as they may."""
        if self.nbytes >= self.most_bytes:
            raise NoRoom(f"the sessions take {self.nbytes} bytes, at most {self.most_bytes}; delete or save some")

    # ---- files -----------------------------------------------------------------------------------

    def saved(self) -> list[str]:
        """Return the names of the sessions in the folder."""
        files = [] if self.folder is None else sorted(self.folder.glob(f"*{SUFFIX}"))
        return [file.name.removesuffix(SUFFIX) for file in files if _is_name(file.name.removesuffix(SUFFIX))]

    def save(self, name: str) -> Session:
        """Write a session to the folder."""
        session = self.get(name)
        weights = named(self.models, session.kept.model).weights
        path = self._file(name)
        kept = session.kept
        save_memory(replace(kept, weights=weights), path)
        session.is_saved = session.kept is kept
        return session

    def save_all(self) -> int:
        """Save every session that has changed, and return how many; without a folder none."""
        changed = [one.id for one in self.by_id.values() if not one.is_saved] if self.folder is not None else []
        for name in changed:
            self.save(name)
        return len(changed)

    def load(self, name: str) -> Session:
        """Read a session from the folder: as it was saved, also where it has been continued since."""
        if name in self.by_id:
            self._check_idle(self.by_id[name])
        elif name not in self.saved():
            self.get(name)  # raises
        else:
            self.check_room()
        path = self._file(name)
        kept = load_memory(path)
        model = self._check(kept, path)
        kept = kept.to(model.scheduler.device) if model.scheduler is not None else kept
        assert isinstance(kept, Kept)
        session = Session(name, kept, is_saved=True)
        self.by_id[name] = session
        return session

    def _file(self, name: str) -> Path:
        if self.folder is None:
            raise FileError("sessions: this server has no folder for them; start it with --sessions FOLDER")
        if not _is_name(name):
            raise Unknown(f"session: got {name!r}, expected 32 digits 0-9a-f")
        return self.folder / f"{name}{SUFFIX}"

    def _check(self, kept: Memory, path: Path) -> Served:
        """Return the model of a loaded session; raise a `FileError` for one that this server cannot continue."""
        if not isinstance(kept, Kept):
            raise FileError(f"{path}: a memory, but no session; save one with POST /v1/sessions/ID/save")
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

    def _check_idle(self, session: Session) -> None:
        if session.is_busy:
            raise Busy(f"session {session.id} is being continued; wait, or fork it before")


def _is_consistent(memory: Memory) -> bool:
    """Return whether a memory of one row counts no more steps than it holds, and none below zero."""
    growing = [part for part in memory.within() if isinstance(part, Growing)]
    is_one = all(len(t) == 1 for t in memory.leaves())
    are_held = all(part.limit is not None or int(part.length.max()) <= part.slots for part in growing)
    are_plain = not any(part.reserved or part.in_place for part in growing)
    return is_one and are_held and are_plain and min(steps_read(memory), default=0) >= 0


def _is_name(name: str) -> bool:
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
