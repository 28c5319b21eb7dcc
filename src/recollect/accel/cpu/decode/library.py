"""The library in C that all models share: threads, choice of ids, functions."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch

from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.decode.c_choice import CHOOSING
from recollect.accel.cpu.decode.c_functions import PRELUDE
from recollect.accel.cpu.decode.c_threads import POOL


class Functions:
    """`once` runs a step; `decode` chooses ids and runs steps many times, by the dtype of the logits."""

    def __init__(self) -> None:
        library = load(PRELUDE + POOL + CHOOSING)
        place = ctypes.c_void_p
        self.once = library.once
        self.once.argtypes = place, place, ctypes.c_int
        self.once.restype = None
        self.decode = {torch.float32: library.decode_f, torch.float64: library.decode_d}
        for function in self.decode.values():
            rows = ctypes.c_int64, place, ctypes.c_int
            function.argtypes = place, place, ctypes.c_int, *rows, place, ctypes.c_int64
            function.restype = ctypes.c_int64


@lru_cache
def functions() -> Functions:
    """Return them, from the cache or compiled; raise `NoCompiler` where that fails."""
    return Functions()
