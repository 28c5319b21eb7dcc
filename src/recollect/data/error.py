"""The error that is raised when data cannot be used: what is wrong, where, and what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from recollect.core.errors import nearest

Notify = Callable[[str], None]


class DataError(ValueError):
    """Data that cannot be used; the message names what is wrong, where, and the next thing to do."""


def silent(_: str) -> None:
    """Drop a notice: the default where nobody listens."""


def did_you_mean(path: Path, others: Iterable[str] = ()) -> str:
    """Return `; did you mean …` for a path that does not exist, by the files beside it and `others`; else nothing."""
    folder = path.parent if path.parent.is_dir() else Path()
    return nearest(path.name, [*(inside.name for inside in folder.iterdir()), *others])
