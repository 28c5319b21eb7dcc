"""A recorded step as one function in C, compiled by the system's compiler where there is one.

Between two calls of numpy lies Python: for a small model more time than the work. A long generation has its step
written in C (c_operations.py) and compiled when first met. Where that fails, whatever the reason, numpy does it:
`REASONS` remembers why.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from recollect.generate.c_operations import copy, emit
from recollect.generate.c_source import Source, Uncovered
from recollect.generate.choosing import MOST, Voice, functions
from recollect.kernels.c_compiler import load

MANY = 250  # steps for which compiling is worth its while: half a second once, nothing from the cache
REASONS: dict[str, str] = {}  # why something was not compiled: "uncovered", "compiler" or "differs"
SHORTEST, LONGEST = 64, 1 << 14  # steps by one thread before several are tried again
SOON = 0.1  # seconds after which Python must have its turn: somebody may want to interrupt

_ASKED: ContextVar[bool] = ContextVar("asked", default=False)
_CORES: ContextVar[int | None] = ContextVar("cores", default=None)


@contextmanager
def compiled() -> Iterator[None]:
    """Compile steps of generations that begin in here, however short they are."""
    token = _ASKED.set(True)
    try:
        yield
    finally:
        _ASKED.reset(token)


def worth_compiling(steps: int, rows: int) -> bool:
    """Whether a generation of so many steps is to be compiled: it depends on nothing else, as the bits do."""
    return rows == 1 and (steps >= MANY or _ASKED.get())


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Say how many threads a compiled step may use, where torch is held to fewer."""
    token = _CORES.set(count)
    try:
        yield
    finally:
        _CORES.reset(token)


class Threads:
    """How many threads share a step: all that may, as long as that is quicker.

    Where other programs keep the cores busy, a thread that waits for its core holds up all others, and a step of 0.05
    ms takes 30. What a step says does not depend on their number.
    """

    def __init__(self) -> None:
        self._alone, self._patience = 4, SHORTEST  # steps to be done by one thread; as many the next time
        self._usual = math.inf  # seconds of a step by one thread
        self._trusted = 1  # steps to be done by several before their time is looked at
        self._last = 0.0  # seconds of a step

    def plan(self, most: int) -> tuple[int, int]:
        """Give how many threads do how many steps now, at most so many."""
        most = min(most, MOST, max(int(SOON / self._last), 1) if self._last else 1)
        if self._alone:
            return 1, min(most, self._alone)
        return _CORES.get() or torch.get_num_threads(), min(most, self._trusted)

    def took(self, seconds: float, steps: int, threads: int) -> None:
        """Learn from what was done."""
        if steps == 0:
            return
        each = self._last = seconds / steps
        if self._alone:
            self._alone, self._usual = max(self._alone - steps, 0), min(self._usual, each)
        elif each > 2 * self._usual and threads > 1:
            self._alone, self._usual, self._trusted = self._patience, math.inf, 1
            self._patience = min(2 * self._patience, LONGEST)
        else:
            self._patience, self._trusted = max(self._patience - steps, SHORTEST), min(2 * self._trusted, MOST)


class Compiled:
    """A step in C, on tensors that stay where they are."""

    def __init__(self, source: Source) -> None:
        self._held = list(source.held.values())  # pointers into them are all that C has
        self._table = (ctypes.c_void_p * len(self._held))(*source.pointers())
        self._does = load(source.text()).step
        self._does.argtypes, self._does.restype = (ctypes.c_void_p, ctypes.c_int), None
        functions()  # what cannot be had is to be known now
        self._threads = Threads()

    def __call__(self) -> None:
        """Do it once."""
        threads, _ = self._threads.plan(1)
        begin = perf_counter()
        self._does(self._table, threads)
        self._threads.took(perf_counter() - begin, 1, threads)

    def speak(
        self, voice: Voice, ids: Tensor, logits: Tensor, is_read: bool, most: int
    ) -> tuple[list[int], list[float], bool]:
        """Read `ids` (1, 1), unless it is read, and say the next, at most so many times; see `Voice`."""
        threads, count = self._threads.plan(most)
        begin = perf_counter()
        said, log_p, all_read = voice.speak(self._does, self._table, threads, ids, logits, is_read, count)
        self._threads.took(perf_counter() - begin, len(said) + all_read - is_read, threads)
        return said, log_p, all_read


def compile_step(operations: Sequence[Any], moves: Sequence[tuple[Tensor, Tensor]]) -> Compiled | None:
    """Compile operations, then copies (to, from); None where it cannot be, for a reason kept in `REASONS`."""
    source = Source()
    try:
        for o in operations:
            emit(source, o.does, o.args, o.kwargs, o.given)
        for to, new in moves:
            copy(source, to, new)
        return Compiled(source)
    except Uncovered as error:
        REASONS["uncovered"] = str(error)
    except (OSError, ValueError) as error:  # no compiler, no cache to write to
        REASONS["compiler"] = f"{type(error).__name__}: {error}"
    return None
