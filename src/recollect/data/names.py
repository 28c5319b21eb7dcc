"""DATA as it is named: one name, or several, which are kept as one string with a name on each line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from recollect.data.error import DataError

Named: TypeAlias = str | Path | Sequence[str | Path]


def join_names(data: Named) -> str:
    """Return one name, or several on a line each, as one string."""
    names = [str(data)] if isinstance(data, str | Path) else [str(name) for name in data]
    if not names:
        raise DataError("DATA: got no name, expected a file, a folder, a glob, - or a built-in")
    for name in names:
        if not name:
            raise DataError("DATA: got '', expected a file, a folder, a glob, - or a built-in, as python-docs")
        if "\n" in name:
            raise DataError(f"DATA: got {name!r}, expected a name without line ends")
    return "\n".join(names)


def split_names(data: str) -> list[str]:
    """Return the names that `join_names` joined."""
    return data.split("\n")


def in_short(data: str) -> str:
    """Return the names for a sentence: all of three at most, else the first and how many more there are."""
    names = split_names(data)
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
