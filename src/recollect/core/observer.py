"""Progress of a long computation: whoever computes tells how far it is; whoever asked may watch, and may end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Watcher: TypeAlias = Callable[[str, int, int], None]  # what is computed, how much is done, and of how much

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


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


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` between the parts of what is computed in this block; it ends the computation by raising."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """Raise where whoever asked for the computation has ended it."""
    asked = _check.get()
    if asked is not None:
        asked()
