"""Ids of one row chosen and read in C (c_choice.py), many per call, as generation/filters.py would choose them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from recollect.accel.cpu.decode.compilation import CompiledStep
from recollect.accel.cpu.decode.library import functions
from recollect.accel.cpu.decode.repeated_step import RepeatedStep
from recollect.core.decode_hooks import DecodeReader, Turn
from recollect.generation.settings import Settings

MOST = 64  # ids chosen in one call
SOON = 0.05  # target seconds of one call of C, twice as many at most: an interrupt is noticed after it


class _ChoiceFields(ctypes.Structure):
    """`choice` of c_choice.py, field by field."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("width", "is_greedy", "top_k", "stops", "prohibitions")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, ctypes.c_void_p) for name in ("stop", "prohibited", "kept", "summed", "order")),
    ]


class ChoiceInC:
    """How one row's ids are chosen: settings and a generator, as C structures."""

    def __init__(self, settings: Settings, generator: np.random.Generator, width: int) -> None:
        self._generator = generator
        self._is_greedy = settings.greedy
        ids = [np.array(ids, dtype=np.int64) for ids in (settings.stop, settings.prohibited)]
        workspace = [np.empty(width, dtype) for dtype in (np.float64, np.float64, np.int64)]
        self._held = *ids, *workspace
        self._fields = _ChoiceFields(
            *(width, settings.greedy, settings.top_k or 0, *map(len, ids)),
            *(settings.temperature, settings.top_p or 1.0, settings.min_p or 0.0),
            *(values.ctypes.data for values in self._held),
        )
        self._uniform = np.zeros(MOST)
        self._chosen = np.empty(MOST, dtype=np.int64)
        self._log_p = np.empty(MOST)
        self._places = [array.ctypes.data for array in (self._uniform, self._chosen, self._log_p)]

    def run(
        self, step: CompiledStep | None, ids: Tensor, logits: Tensor, is_read: bool, count: int
    ) -> tuple[list[int], list[float], bool]:
        """Read `ids` (1, 1), unless it has been read, and choose the next, `count` times, at most `MOST`.

        Returns the ids, log p of each, and whether all of them have been read: nothing could be chosen after them.
        """
        count = min(count, MOST)  # more would be written past the end
        before = None if self._is_greedy else self._generator.bit_generator.state
        if before is not None:
            self._uniform[:count] = self._generator.random(count)
        work = (None, None) if step is None else (step.function, step.table)
        ended = functions().decode[logits.dtype](
            *(*work, torch.get_num_threads(), ids.data_ptr(), logits.data_ptr(), is_read),
            *(ctypes.byref(self._fields), self._places[0], count, *self._places[1:]),
        )
        done = ended if ended >= 0 else -1 - ended
        if before is not None and done < count:  # as if the rest had not been drawn
            self._generator.bit_generator.state = before
            self._generator.random(done)
        return self._chosen[:done].tolist(), self._log_p[:done].tolist(), ended < 0


class ChoiceLoop:
    """Turns of one row by a compiled step: the form behind the hook "decode_loop" on a CPU."""

    def __init__(self, reader: DecodeReader, settings: Settings, generator: np.random.Generator) -> None:
        self._reader = reader
        self._choice = ChoiceInC(settings, generator, reader.model.width_out)
        self._trusted = 1  # turns in one call, so that it can be interrupted in time

    def take(
        self, unread: list[int] | None, most: int, left: int, active: list[bool]
    ) -> tuple[list[Turn], list[int] | None]:
        """Read an id where one is unread, and choose the next, up to `most` times, without Python."""
        reader = self._reader
        is_read = unread is None
        step = reader.ready_step(is_next=not is_read)
        if not isinstance(step, RepeatedStep) or not step.logits.is_contiguous() or not step.logits.is_floating_point():
            return [], unread
        if is_read and reader.logits is not step.logits:
            return [], unread
        if unread is not None:
            step.ids[0, 0] = unread[0]
        count = int(min(most, reader.room + is_read, self._trusted))
        begin = perf_counter()
        ids, log_p, all_read = self._choice.run(step.compiled, step.ids, step.logits, is_read, count)
        self._trusted = min(2 * count, MOST) if perf_counter() - begin < SOON else max(count // 2, 1)
        reader.room -= len(ids) + all_read - is_read
        reader.logits = step.logits
        turns = [([i], [p]) for i, p in zip(ids, log_p, strict=True)]
        return turns, None if all_read else [*(unread or []), *ids][-1:]


def loop_in_c(reader: DecodeReader, settings: Settings, generators: Sequence[np.random.Generator]) -> ChoiceLoop | None:
    """Return a loop for a generation of one row whose choice C implements; None: Python chooses."""
    if len(generators) != 1 or settings.repetition_penalty != 1:
        return None
    return ChoiceLoop(reader, settings, generators[0])
