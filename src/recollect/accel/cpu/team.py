"""Work in C that is divided among the threads that torch computes with, and the sources it is compiled from."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch


def source(*names: str, defined: Sequence[str] = ()) -> str:
    """Return some of the sources as one text, below the macros that are defined."""
    here = files("recollect.accel.cpu") / "sources"
    texts = [here.joinpath(name).read_text(encoding="utf-8") for name in names]
    return "\n".join([*(f"#define {name}" for name in defined), *texts])


def divide(library: ctypes.CDLL, call: Any, threads: int, work: int = 0) -> None:
    """Do some work of a call; each thread its part."""
    call.threads = threads
    functions = torch_threads()
    what = (ctypes.byref(call), ctypes.c_int64(work))
    if threads == 1:
        library.share(*what, ctypes.c_int64(0))
    elif functions is not None:
        library.share_all(*what, *functions)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for i in range(threads):
                pool.submit(library.share, *what, ctypes.c_int64(i))


@lru_cache
def torch_threads() -> tuple[ctypes.c_void_p, ...] | None:
    """Return the entry points of torch's own OpenMP: parallel region, thread number and count; None where not found.

    A second OpenMP would keep its threads spinning while torch's compute, on the same cores.
    """
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    path = _openmp()
    try:
        openmp = None if path is None else ctypes.CDLL(path)
        return None if openmp is None else tuple(ctypes.cast(openmp[name], ctypes.c_void_p) for name in names)
    except (OSError, AttributeError):
        return None


def _openmp() -> str | None:
    """Return the path of the loaded OpenMP; where there are several, the one that came with torch."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    loaded = {Path(line.split(maxsplit=5)[-1]) for line in lines if "/" in line}
    found = sorted(path for path in loaded if path.name.startswith(("libgomp", "libiomp5", "libomp")))
    beside = Path(torch.__file__).parent.parent
    with_torch = [path for path in found if any(path.is_relative_to(beside / name) for name in ("torch", "torch.libs"))]
    return next(map(str, with_torch + found), None)
