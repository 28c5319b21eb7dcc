"""What one row says: ids chosen in C (c_choosing.py), many in a row, as filters.py would choose them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from torch import Tensor

from recollect.accel.cpu.decode.library import functions
from recollect.generation.settings import Settings

MOST = 64  # ids said at once


class _Choice(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("width", "is_greedy", "top_k", "stops", "prohibitions")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, ctypes.c_void_p) for name in ("stop", "prohibited", "kept", "summed", "order")),
    ]


class Voice:
    """What one row says: its settings, its generator, and C to choose with."""

    def __init__(self, settings: Settings, generator: np.random.Generator, width: int) -> None:
        self._generator, self._is_greedy = generator, settings.greedy
        ids = [np.array(ids, dtype=np.int64) for ids in (settings.stop, settings.prohibited)]
        room = [np.empty(width, dtype) for dtype in (np.float64, np.float64, np.int64)]
        self._held = *ids, *room
        self._choice = _Choice(
            *(width, settings.greedy, settings.top_k or 0, *map(len, ids)),
            *(settings.temperature, settings.top_p or 1.0, settings.min_p or 0.0),
            *(values.ctypes.data for values in self._held),
        )
        self._uniform, self._log_p = np.zeros(MOST), np.empty(MOST)
        self._said = np.empty(MOST, dtype=np.int64)
        self._places = [array.ctypes.data for array in (self._uniform, self._said, self._log_p)]

    def speak(
        self, step: Any, table: Any, threads: int, ids: Tensor, logits: Tensor, is_read: bool, count: int
    ) -> tuple[list[int], list[float], bool]:
        """Read an id, unless it is read, and say the next, `count` times, at most `MOST`.

        Gives the ids, log p of each, and whether all of them have been read: nothing could be chosen after them.
        """
        count = min(count, MOST)  # more would be written behind the end
        before = None if self._is_greedy else self._generator.bit_generator.state
        if before is not None:
            self._uniform[:count] = self._generator.random(count)
        uniform, said, log_p = self._places
        ended = functions().speak[logits.dtype](
            *(step, table, threads, ids.data_ptr(), logits.data_ptr(), is_read),
            *(ctypes.byref(self._choice), uniform, count, said, log_p),
        )
        done = ended if ended >= 0 else -1 - ended
        if before is not None and done < count:  # as if the rest had not been drawn
            self._generator.bit_generator.state = before
            self._generator.random(done)
        return self._said[:done].tolist(), self._log_p[:done].tolist(), ended < 0
