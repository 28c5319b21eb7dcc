"""A recorded step as one function in C, compiled by the system's compiler where there is one.

Where that fails, whatever the reason, generation calls the model itself: `REASONS` holds why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.decode.c_operations import copy, emit
from recollect.accel.cpu.decode.c_source import CSource, Uncovered
from recollect.accel.cpu.decode.library import functions
from recollect.accel.cpu.decode.recording import Operation
from recollect.accel.model_survey import FEWEST
from recollect.core.memory import Fixed, Memory
from recollect.generation.settings import is_compilation_requested

MANY = 100  # steps from which on compiling is faster: half a second once, nothing from the cache
MANY_AFTER_SOURCE = 32  # the same for a decoder of a source: it is called for many
REASONS: dict[str, str] = {}  # why something was not compiled: "uncovered", "compiler" or "differs"


def worth_compiling(steps: int, memory: Memory | None) -> bool:
    """Return whether a generation of so many steps is compiled.

    It depends on nothing else, because the last bits do.
    """
    if is_compilation_requested():
        return steps >= FEWEST
    has_source = any(isinstance(part, Fixed) for part in (memory.within() if memory else ()))
    return steps >= (MANY_AFTER_SOURCE if has_source else MANY)


class CompiledStep:
    """A step in C, on tensors with fixed addresses."""

    def __init__(self, source: CSource) -> None:
        self._held = list(source.held.values())  # pointers into them are all that C has
        self.table = (ctypes.c_void_p * len(self._held))(*source.pointers())
        self.function = load(source.text()).step
        self._once = functions().once

    def __call__(self) -> None:
        """Run it once."""
        self._once(self.function, self.table, torch.get_num_threads())


def compile_step(operations: Sequence[Operation], moves: Sequence[tuple[Tensor, Tensor]]) -> CompiledStep:
    """Compile operations, then copies (to, from); what prevents it is raised, and recorded in `REASONS`."""
    source = CSource()
    try:
        for o in operations:
            emit(source, o.does, o.args, o.kwargs, o.given)
        for to, new in moves:
            copy(source, to, new)
        return CompiledStep(source)
    except Uncovered as error:
        REASONS["uncovered"] = str(error)
        raise
    except (OSError, ValueError) as error:  # no compiler, no cache to write to
        REASONS["compiler"] = f"{type(error).__name__}: {error}"
        raise
