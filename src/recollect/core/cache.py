"""Folders that are built once and reused: complete or absent, also when several processes build the same one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RECORD = "parts.json"  # written last: the sizes of the other files, and what the builder adds


def cache_folder(given: str | Path | None) -> Path:
    """Return the cache's folder: the given one, or the user's."""
    return Path(given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recollect")


def build_folder(folder: Path, fill: Callable[[Path], Mapping[str, object]]) -> None:
    """Fill a temporary folder, write its record, and rename it when complete."""
    beside = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        record = fill(beside)
        sizes = {path.name: path.stat().st_size for path in beside.iterdir()}
        (beside / RECORD).write_text(json.dumps({"bytes": sizes, **record}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
    except OSError:
        if not is_whole(folder):  # else another process was faster
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record."""
    record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return record


def is_whole(folder: Path) -> bool:
    """Return whether a folder exists with every file at its recorded size."""
    try:
        return all((folder / name).stat().st_size == size for name, size in read_record(folder)["bytes"].items())
    except (OSError, ValueError, KeyError):
        return False


def is_sound(folder: Path, name: str) -> bool:
    """Return whether a folder is complete and one of its files is unchanged: its record has the file's "sha256"."""
    return is_whole(folder) and digest(folder / name) == read_record(folder).get("sha256")


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
