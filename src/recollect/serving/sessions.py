"""Sessions: memories that a server keeps. What was read is never read again, however long it was.

A memory is a value, so a fork is the same memory under another name, and a session that is being continued still has
its last state until the continuation ends. Saved sessions are memory files: safetensors with a checksum.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.core.serialize import FileError, WriteFailed
from recollect.serving.served import Served
from recollect.serving.session_files import Kept, SessionFiles, is_name

TAIL = 64  # characters of the text that are kept: a decoder looks at the last ones


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
    """The sessions take as many bytes, or are as many, as they may be."""


class Sessions:
    """The sessions of a server, in the event loop's thread; `folder` is where they are saved."""

    def __init__(
        self,
        models: Sequence[Served],
        folder: Path | None = None,
        most_bytes: int = 2**30,
        most: int = 10_000,
    ) -> None:
        self.files = None if folder is None else SessionFiles(models, folder)
        self.most_bytes = most_bytes
        self.most = most
        self.by_id: dict[str, Session] = {}
        self.nbytes = 0  # of all sessions; what forks share is counted once
        self._holders: Counter[int] = Counter()  # sessions that hold a tensor, by its id

    def close(self) -> None:
        """Unlock the folder."""
        if self.files is not None:
            self.files.close()

    # ---- one session -----------------------------------------------------------------------------

    def get(self, name: str) -> Session:
        """Return a session."""
        if name not in self.by_id:
            is_saved = self.files is not None and self.files.has(name)
            raise Unknown(f"session: got {name!r}, which there is not{'; it is saved, load it first' * is_saved}")
        return self.by_id[name]

    def add(self, kept: Kept) -> Session:
        """Keep a memory as a new session."""
        self.check_room()
        return self._put(Session(secrets.token_hex(16), kept))

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
            self._release(session.kept)
            self._hold(kept)
            session.kept = kept
            session.is_saved = False

    def fork(self, name: str) -> Session:
        """Return a new session that remembers the same; tensors are shared until either is continued."""
        kept = self.get(name).kept
        self._check_number()
        return self._put(Session(secrets.token_hex(16), kept))

    async def delete(self, name: str) -> None:
        """Forget a session, and delete its file."""
        is_saved = self.files is not None and self.files.has(name)
        if name in self.by_id or not is_saved:
            session = self.get(name)
            self._check_idle(session)
            self._release(self.by_id.pop(name).kept)
        if self.files is not None and is_name(name):
            await asyncio.to_thread(self.files.delete, name)

    def check_room(self) -> None:
        """Raise `NoRoom` where the sessions take as many bytes, or are as many, as they may be."""
        self._check_number()
        if self.nbytes >= self.most_bytes:
            raise NoRoom(f"the sessions take {self.nbytes} bytes, at most {self.most_bytes}; delete some")

    def _check_number(self) -> None:
        if len(self.by_id) >= self.most:
            raise NoRoom(f"there are {len(self.by_id)} sessions, at most {self.most} may be; delete some")

    def _put(self, session: Session) -> Session:
        self.by_id[session.id] = session
        self._hold(session.kept)
        return session

    def _hold(self, kept: Kept) -> None:
        for t in kept.leaves():
            self.nbytes += 0 if self._holders[id(t)] else t.nbytes
            self._holders[id(t)] += 1

    def _release(self, kept: Kept) -> None:
        for t in kept.leaves():
            self._holders[id(t)] -= 1
            if not self._holders[id(t)]:
                del self._holders[id(t)]
                self.nbytes -= t.nbytes

    def _check_idle(self, session: Session) -> None:
        if session.is_busy:
            raise Busy(f"session {session.id} is being continued; wait, or fork it before")

    # ---- files -----------------------------------------------------------------------------------

    def saved(self) -> list[str]:
        """Return the names of the sessions in the folder."""
        return [] if self.files is None else self.files.names()

    async def save(self, name: str) -> Session:
        """Write a session to the folder."""
        session = self.get(name)
        files = self._folder()
        kept = session.kept
        await asyncio.to_thread(files.save, name, kept)
        if name not in self.by_id:  # deleted in the meantime
            await asyncio.to_thread(files.delete, name)
        session.is_saved = session.kept is kept
        return session

    def save_all(self) -> tuple[int, list[str]]:
        """Save every session that has changed; return how many, and why others could not be. Without a folder none."""
        saved = 0
        problems: list[str] = []
        for session in self.by_id.values() if self.files is not None else ():
            if session.is_saved:
                continue
            try:
                self._folder().save(session.id, session.kept)
            except (WriteFailed, FileError) as error:
                problems.append(str(error))
            else:
                session.is_saved = True
                saved += 1
        return saved, problems

    async def load(self, name: str) -> Session:
        """Read a session from the folder: as it was saved, also where it has been continued since."""
        files = self._folder()
        if name in self.by_id:
            self._check_idle(self.by_id[name])
        elif not files.has(name):
            self.get(name)  # raises
        else:
            self.check_room()
        kept = await asyncio.to_thread(files.load, name)
        if name in self.by_id:
            self._check_idle(self.by_id[name])  # again: it may have been begun in the meantime
            self._release(self.by_id[name].kept)
        else:
            self.check_room()  # again: others may have been loaded
        return self._put(Session(name, kept, is_saved=True))

    def _folder(self) -> SessionFiles:
        if self.files is None:
            raise FileError("sessions: this server has no folder for them; start it with --sessions FOLDER")
        return self.files
