"""What is compiled once for all models, and how many threads it may use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import torch

from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.decode.c_choice import CHOOSING
from recollect.accel.cpu.decode.c_functions import PRELUDE
from recollect.accel.cpu.decode.c_rows import ROWS
from recollect.accel.cpu.decode.c_threads import POOL

_CORES: ContextVar[int | None] = ContextVar("cores", default=None)


class Functions:
    """`once` does a step, `speak` many, by the kind of the logits; `multiply` a product of one row with a matrix."""

    def __init__(self) -> None:
        library, place = load(PRELUDE + POOL + CHOOSING + ROWS), ctypes.c_void_p
        whole, small = ctypes.c_int64, ctypes.c_int
        self.once = library.once
        self.once.argtypes, self.once.restype = (place, place, small), None
        self.speak = {torch.float32: library.speak_f, torch.float64: library.speak_d}
        for function in self.speak.values():
            function.argtypes = place, place, small, place, place, small, place, place, whole, place, place
            function.restype = whole
        self.multiply = {torch.float32: library.multiply_f, torch.float64: library.multiply_d}
        for function in self.multiply.values():
            function.argtypes, function.restype = (place, place, place, whole, whole, small), None


@lru_cache
def functions() -> Functions:
    """Give them, from the cache or compiled; raises `NoCompiler`."""
    return Functions()


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Say how many threads C may use, where torch is held to fewer."""
    token = _CORES.set(count)
    try:
        yield
    finally:
        _CORES.reset(token)


def threads() -> int:
    """Give how many threads C may use."""
    return _CORES.get() or torch.get_num_threads()
