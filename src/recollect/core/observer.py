"""Progress of a long computation: whoever computes tells how far it is, and whoever asked may watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Watcher: TypeAlias = Callable[[str, int, int], None]  # what is computed, how much is done, and of how much

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def observed(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with the progress of what is computed in this block."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """Report progress to whoever watches."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(what, done, total)
