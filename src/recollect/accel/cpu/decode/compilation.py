"""A recorded step as one function in C, compiled by the system's compiler where there is one.

Between two calls of numpy lies Python: for a small model more time than the work. A long generation has its step
written in C (c_operations.py) and compiled when first met. Where that fails, whatever the reason, numpy does it:
`REASONS` remembers why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from torch import Tensor

from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.decode.c_operations import copy, emit
from recollect.accel.cpu.decode.c_source import Source, Uncovered
from recollect.accel.cpu.decode.choice_loop import MOST, Voice
from recollect.accel.cpu.decode.library import functions, threads

MANY = 250  # steps for which compiling is worth its while: half a second once, nothing from the cache
REASONS: dict[str, str] = {}  # why something was not compiled: "uncovered", "compiler" or "differs"
SOON = 0.05  # seconds that C may take at once, twice as many at most

_ASKED: ContextVar[bool] = ContextVar("asked", default=False)


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


class Compiled:
    """A step in C, on tensors that stay where they are."""

    def __init__(self, source: Source) -> None:
        self._held = list(source.held.values())  # pointers into them are all that C has
        self._table = (ctypes.c_void_p * len(self._held))(*source.pointers())
        self._does, self._once = load(source.text()).step, functions().once
        self._trusted = 1  # steps that can be done before somebody wants to interrupt

    def __call__(self) -> None:
        """Do it once."""
        self._once(self._does, self._table, threads())

    def speak(
        self, voice: Voice, ids: Tensor, logits: Tensor, is_read: bool, most: int
    ) -> tuple[list[int], list[float], bool]:
        """Read `ids` (1, 1), unless it is read, and say the next, at most so many times; see `Voice`."""
        count, begin = min(most, self._trusted), perf_counter()
        said, log_p, all_read = voice.speak(self._does, self._table, threads(), ids, logits, is_read, count)
        self._trusted = min(2 * count, MOST) if perf_counter() - begin < SOON else max(count // 2, 1)
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
