"""NVIDIA's run-time compiler, which torch's CUDA wheels include: CUDA C++ in, machine code for one architecture out.

Neither a toolkit nor a GPU is needed to compile. What is compiled is kept in the user's cache, under a hash of the
source, the compiler and the architecture, and used from there only if its own hash still matches.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

from recollect.core.cache import build_folder, cache_folder, digest, is_sound

OPTIONS = ("-std=c++17", "-diag-suppress=177")
CUBIN = "kernel.cubin"

_BUILDING = Lock()


class NoCudaCompiler(OSError):
    """There is no run-time compiler, or it does not compile."""


def build(sources: Mapping[str, str], main: str, macros: Mapping[str, int | str], arch: str) -> bytes:
    """Return the machine code of a source, from the cache or compiled; raise `NoCudaCompiler` where that fails."""
    options = [f"-arch={arch}", *OPTIONS, *(f"-D{name}={value}" for name, value in sorted(macros.items()))]
    parts = [main, *options, repr(version())] + [f"{name}\n{text}" for name, text in sorted(sources.items())]
    folder = cache_folder(None) / "cubins" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    with _BUILDING:
        if not is_sound(folder, CUBIN):
            build_folder(folder, lambda beside: _fill(beside, sources, main, options))
    return (folder / CUBIN).read_bytes()


def compile_source(sources: Mapping[str, str], main: str, options: Sequence[str]) -> tuple[bytes, str]:
    """Compile one source, which may include the others; return the machine code and the compiler's log."""
    library = load()
    names = [name for name in sources if name != main]
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program),
            sources[main].encode(),
            main.encode(),
            len(names),
            _strings([sources[name] for name in names]),
            _strings(names),
        )
    )
    try:
        status = library.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            raise NoCudaCompiler(f"nvrtc ended with {status}: {log.strip()[-2000:]}")
        return _bytes(program, "CUBIN"), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache
def load() -> ctypes.CDLL:
    """Return the library; raise `NoCudaCompiler` where there is none."""
    for path in _candidates():
        try:
            # The library looks for its built-in header by name alone, which is found once it is loaded.
            for builtins in Path(path).parent.glob("libnvrtc-builtins.so*") if Path(path).is_absolute() else ():
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    raise NoCudaCompiler("libnvrtc not found: torch's CUDA wheels include it, its CPU wheels do not")


@lru_cache
def version() -> tuple[int, int]:
    """Return the compiler's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(load().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _candidates() -> list[Path | str]:
    import torch

    home = Path(torch.__file__).parent
    wheels = sorted(home.parent.glob("nvidia/*/lib/libnvrtc.so.*"), reverse=True)
    inside = sorted(home.glob("lib/libnvrtc*.so*"))
    known = [path for path in [*wheels, *inside] if "builtins" not in path.name and ".alt." not in path.name]
    found = ctypes.util.find_library("nvrtc")
    return [*known, *([found] if found else []), "libnvrtc.so.13", "libnvrtc.so.12"]


def _fill(folder: Path, sources: Mapping[str, str], main: str, options: Sequence[str]) -> dict[str, object]:
    code, log = compile_source(sources, main, options)
    (folder / CUBIN).write_bytes(code)
    return {"sha256": digest(folder / CUBIN), "options": list(options), "log": log}


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(load(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(load(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status:
        raise NoCudaCompiler(f"nvrtc answered {status}")
