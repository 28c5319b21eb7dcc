"""Ids chosen and read in C (c_choice.py), many per call, as generation/filters.py would choose them."""

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

MOST = 64  # ids chosen in one call, in each row
SOON = 0.05  # target seconds of one call of C, twice as many at most: an interrupt is noticed after it


class _ChoiceFields(ctypes.Structure):
    """`choices` of c_choice.py, field by field, those of `choice` last."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("logits", "active", "uniform")),
        *(("stride", ctypes.c_int64), ("chosen", ctypes.c_void_p), ("log_p", ctypes.c_void_p)),
        *((name, ctypes.c_int64) for name in ("width", "is_greedy", "top_k", "stops", "prohibitions")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, ctypes.c_void_p) for name in ("stop", "prohibited", "kept", "summed", "order")),
    ]


class ChoiceInC:
    """How the rows' ids are chosen: settings and a generator for each row, as C structures."""

    def __init__(self, settings: Settings, generators: Sequence[np.random.Generator], width: int) -> None:
        self._generators = [] if settings.greedy else generators
        self._rows = rows = len(generators)
        ids = [np.array(ids, dtype=np.int64) for ids in (settings.stop, settings.prohibited)]
        workspace = [np.empty(rows * width, dtype) for dtype in (np.float64, np.float64, np.int64)]
        self._held = *ids, *workspace
        self._choice = (
            *(width, settings.greedy, settings.top_k or 0, *map(len, ids)),
            *(settings.temperature, settings.top_p or 1.0, settings.min_p or 0.0),
            *(values.ctypes.data for values in self._held),
        )
        self._uniform = np.zeros((MOST, rows))
        self._chosen = np.empty((MOST, rows), dtype=np.int64)
        self._log_p = np.empty((MOST, rows))

    def run(
        self, step: CompiledStep | None, ids: Tensor, logits: Tensor, is_read: bool, count: int, active: list[bool]
    ) -> tuple[list[list[int]], list[list[float]], bool]:
        """Read `ids`, unless they have been read, and choose the next in active rows, `count` times, at most `MOST`.

        Returns the ids (count, B), log p of each, and whether all of them have been read: nothing could be chosen
        after them.
        """
        count = min(count, MOST)  # more would be written past the end
        drawing = [(row, g) for row, g in enumerate(self._generators) if active[row]]
        before = [g.bit_generator.state for _, g in drawing]
        for row, generator in drawing:
            self._uniform[:count, row] = generator.random(count)
        live = np.array(active, dtype=np.uint8)
        places = [array.ctypes.data for array in (live, self._uniform)]
        results = [array.ctypes.data for array in (self._chosen, self._log_p)]
        fields = _ChoiceFields(logits.data_ptr(), *places, logits.stride(0), *results, *self._choice)
        work = (None, None) if step is None else (step.function, step.table)
        ended = functions().decode[logits.dtype](
            *work, torch.get_num_threads(), self._rows, ids.data_ptr(), is_read, ctypes.byref(fields), count
        )
        done = ended if ended >= 0 else -1 - ended
        if done < count:  # as if the rest had not been drawn
            for (_, generator), state in zip(drawing, before, strict=True):
                generator.bit_generator.state = state
                generator.random(done)
        return self._chosen[:done].tolist(), self._log_p[:done].tolist(), ended < 0


class ChoiceLoop:
    """Turns by a compiled step: the form behind the hook "decode_loop" on a CPU."""

    def __init__(self, reader: DecodeReader, settings: Settings, generators: Sequence[np.random.Generator]) -> None:
        self._reader = reader
        self._choice = ChoiceInC(settings, generators, reader.model.width_out)
        self._trusted = 1  # turns in one call, so that it can be interrupted in time
        self._last: dict[int, Tensor] = {}  # logits of the rows that have ended, which steps overwrite

    def take(
        self, unread: list[int] | None, most: int, left: int, active: list[bool]
    ) -> tuple[list[Turn], list[int] | None]:
        """Read ids where some are unread, and choose the next, up to `most` times, without Python."""
        reader = self._reader
        is_read = unread is None
        step = reader.ready_step(is_next=not is_read)
        if not isinstance(step, RepeatedStep) or step.logits.stride(1) != 1 or not step.logits.is_floating_point():
            return [], unread
        if reader.logits.dtype != step.logits.dtype:
            return [], unread
        if reader.logits is not step.logits:
            step.logits.copy_(reader.logits)
        reads = active if unread is None else [i >= 0 for i in unread]
        step.mask(None if all(reads) else torch.tensor(reads))
        if unread is not None:
            step.ids[: len(unread), 0] = torch.tensor(unread).clamp(min=0)
        ending = [row for row, live in enumerate(active) if reads[row] and not live]  # they read their last id now
        count = 1 if ending else int(min(most, reader.slots_left + is_read, self._trusted))
        for row, live in enumerate(reads):
            if not live and row not in self._last:
                self._last[row] = step.logits[row].clone()
        begin = perf_counter()
        ids, log_p, all_read = self._choice.run(step.compiled, step.ids, step.logits, is_read, count, active)
        self._trusted = min(2 * count, MOST) if perf_counter() - begin < SOON else max(count // 2, 1)
        reader.slots_left -= len(ids) + all_read - is_read
        for row, logits in self._last.items():
            step.logits[row] = logits
        self._last |= {row: step.logits[row].clone() for row in ending}
        reader.logits = step.logits
        return list(zip(ids, log_p, strict=True)), None if all_read else [unread, *ids][-1]


def loop_in_c(reader: DecodeReader, settings: Settings, generators: Sequence[np.random.Generator]) -> ChoiceLoop | None:
    """Return a loop for a generation whose choice C implements; None: Python chooses."""
    if settings.repetition_penalty != 1 or not generators:
        return None
    return ChoiceLoop(reader, settings, generators)
