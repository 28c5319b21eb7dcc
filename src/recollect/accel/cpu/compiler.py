"""The system's C compiler, where there is one: sources in, functions out.

What is compiled is kept in the user's cache, under a hash of the source, the compiler and the machine. A library is
loaded only if its own hash still matches: a broken one would end the process, not raise.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from threading import Lock

from recollect.core.cache import build_folder, cache_folder, digest, is_sound
from recollect.core.processor import processor

FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math")
EXTRAS = (("-march=native", "-fopenmp"), ("-march=native", "-fopenmp-simd"), ())  # the first that the compiler accepts
LIBRARY, SECONDS = "library.so", 120
TINY = "int twice(int x) { return 2 * x; }\n"

_BUILDING = Lock()


class NoCompiler(OSError):
    """There is no compiler, or it does not compile."""


def load(text: str) -> ctypes.CDLL:
    """Return a source's library, from the cache or compiled; raise `NoCompiler` where that fails."""
    compiler = find_compiler()
    key = "\n".join([text, *compiler, _version(compiler), *FLAGS, repr(EXTRAS), processor()])
    folder = cache_folder(None) / "compiled" / hashlib.sha256(key.encode()).hexdigest()[:32]
    with _BUILDING:
        if not is_sound(folder, LIBRARY):
            build_folder(folder, lambda beside: _build(compiler, text, beside))
    return ctypes.CDLL(str(folder / LIBRARY))


def examine() -> tuple[str, bool]:
    """Return the compiler's command, and whether what it compiles runs correctly; raise `NoCompiler` or OSError."""
    return " ".join(find_compiler()), load(TINY).twice(21) == 42


def find_compiler() -> tuple[str, ...]:
    """Return the command of a C compiler: that of CC (`ccache gcc` is one too), or the system's."""
    named = tuple(shlex.split(os.environ.get("CC", "")))
    candidates = [named] if named else [("cc",), ("gcc",), ("clang",)]
    for name, *rest in candidates:
        path = shutil.which(name)
        if path is not None:
            return path, *rest
    raise NoCompiler(f"no C compiler: {' or '.join(name for name, *_ in candidates)} not found")


@lru_cache
def _version(compiler: tuple[str, ...]) -> str:
    return _run([*compiler, "--version"])


def _build(compiler: tuple[str, ...], text: str, folder: Path) -> dict[str, object]:
    source, library = folder / "source.c", folder / LIBRARY
    source.write_text(text, encoding="utf-8")
    for extra in EXTRAS:
        try:
            _run([*compiler, *FLAGS, *extra, str(source), "-o", str(library), "-lm"])
            break
        except NoCompiler:
            if extra == EXTRAS[-1]:
                raise
    return {"sha256": digest(library), "flags": [*FLAGS, *extra]}


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoCompiler(f"{command[0]} did not end in {SECONDS} s") from error
    if done.returncode:
        raise NoCompiler(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
