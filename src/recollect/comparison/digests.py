"""Digests of the files that a comparison reads: it is continued only with the same data and the same own code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from glob import glob
from pathlib import Path

from recollect.core.errors import is_own

BLOCK = 1 << 20  # bytes read at once


def digests_of(names: Iterable[str]) -> dict[str, str]:
    """Return a digest for each name of a file, a folder, a glob or own code; other names have none."""
    found = {name: files for name in names if (files := _files(name))}
    return {name: _digest(files) for name, files in found.items()}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return a name whose files are no longer what they were; None where all are."""
    return next((name for name in (*before, *now) if before.get(name) != now.get(name)), None)


def _files(name: str) -> list[Path]:
    """Return the files of a name in order."""
    path = Path(name.rpartition(":")[0] if is_own(name) and name.rpartition(":")[0].endswith(".py") else name)
    try:
        if path.is_dir():
            return sorted(one for one in path.rglob("*") if one.is_file())
        return [path] if path.is_file() else sorted(Path(one) for one in glob(name) if Path(one).is_file())
    except OSError:  # too long for a path: a setting that is none
        return []


def _digest(files: Iterable[Path]) -> str:
    """Return one digest of the names and contents of files."""
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path.name} {path.stat().st_size} ".encode())
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    return found.hexdigest()[:32]
