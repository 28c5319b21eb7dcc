"""The files that a verb writes where a user says: a file of the user's own is never replaced."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from recollect.cli.app import refuse

OURS = (  # one of these stands near the beginning of every file that the verbs write
    b'<meta name="generator" content="recollect">',
    b"<!-- recollect -->",
    b'"command": "recollect bench',
)
START = 1 << 16  # bytes that are searched


def check_output(flag: str, name: str | None, *endings: str) -> None:
    """Refuse a place where a file cannot be written, a file that is there and is not one of ours, another ending."""
    if name is None:
        return
    path = Path(name)
    if endings and path.suffix.lower() not in endings:
        other = str(path.with_suffix(endings[0]))
        refuse(
            f"{flag}: got {name}, expected a name that ends in {' or '.join(endings)}", _elsewhere(flag, name, other)
        )
    folder = path.resolve().parent
    if not folder.is_dir():
        refuse(f"{flag}: got {name}, but there is no such folder", _elsewhere(flag, name, path.name))
    if not os.access(folder, os.W_OK):
        refuse(f"{flag}: got {name}, but its folder cannot be written to", _elsewhere(flag, name, f"/tmp/{path.name}"))
    if path.is_dir():
        refuse(f"{flag}: got {name}, which is a folder", _elsewhere(flag, name, str(path / "page.html")))
    if path.exists() and not _is_ours(path):
        beside = path.with_name(f"{path.stem}-2{path.suffix}")
        problem = f"{flag}: {name} exists and was not written by recollect; nothing was overwritten"
        refuse(problem, _elsewhere(flag, name, str(beside)))


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(START)
    return any(mark in start for mark in OURS)


def _elsewhere(flag: str, name: str, other: str) -> str:
    """Return the command that was typed, with another name for the file."""
    words = ["recollect", *(other if word == name else word for word in sys.argv[1:])]
    return shlex.join(words if other in words else [*words, flag, other])
