"""The launches of a time loop, as far as they depend on sizes alone: computed once, addresses filled in per call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from recollect.accel.cuda.recurrent.chunks import Cuts, spans
from recollect.accel.cuda.recurrent.plan import Chore, KernelPlan
from recollect.accel.cuda.recurrent.workspace import Extent


class ForwardArguments(ctypes.Structure):
    """`Forward` of forward.cu, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "bias", "weights", "hidden", "cell", "lengths")),
        *((name, ctypes.c_void_p) for name in ("outputs", "cells")),
        *((name, ctypes.c_void_p) for name in ("last_hidden", "last_cell", "exchange", "counters", "failed", "told")),
        *((name, ctypes.c_int) for name in ("steps", "by_step", "rows", "width", "groups", "keeps")),
    )


class BackwardArguments(ctypes.Structure):
    """`Backward` of backward.cu, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("gates", "cells", "outputs", "weights", "lengths", "d_outputs")),
        *(
            (name, ctypes.c_void_p)
            for name in ("d_last_hidden", "d_last_cell", "d_logits", "d_hidden", "d_cell", "d_bias")
        ),
        *((name, ctypes.c_void_p) for name in ("exchange", "counters", "failed", "told")),
        *((name, ctypes.c_int64) for name in ("step_stride", "row_stride")),
        *((name, ctypes.c_int) for name in ("steps", "by_step", "rows", "width", "groups")),
    )


class Sizes(NamedTuple):
    """Sizes of a plan that every call needs."""

    exchange: int  # bytes before the counters
    counters: int  # bytes of the counters; a word for failure follows
    space: int  # bytes of all that, in whole lines
    parts: int  # of W_hh packed, 16 bytes each
    packing: dict[str, int]  # by the names of prepare.cu
    chores: dict[str, Chore]


@lru_cache(maxsize=4096)
def sizes(plan: KernelPlan) -> Sizes:
    """Compute them once."""
    exchange, counters = plan.exchange_bytes, 4 * plan.counters
    parts = plan.blocks * plan.wide * plan.deep * plan.weight_tiles * 128
    shape = {name: getattr(plan, name) for name in ("wide", "deep", "depth", "high", "laid", "cluster")}
    packing = {"parts": parts, **shape, "span": plan.cluster * plan.units}
    space = -(-(exchange + counters + 16) // 128) * 128
    return Sizes(exchange, counters, space, parts, packing, Chore.all_of(plan))


class LoopLaunch(NamedTuple):
    """One launch of a time loop, as far as it depends on sizes alone."""

    arguments: ctypes.Structure  # to be copied
    pointers: tuple[tuple[str, str, int], ...]  # each by name: into which part, and at which offset in bytes

    def fill(self, addresses: dict[str, int]) -> ctypes.Structure:
        """Return the arguments with addresses filled in; the pointer to a part that is absent stays null."""
        arguments = type(self.arguments).from_buffer_copy(self.arguments)
        for name, part, offset in self.pointers:
            if part in addresses:
                setattr(arguments, name, addresses[part] + offset)
        return arguments


class Place(NamedTuple):
    """Strides of a part, in bytes: steps or chunks follow each other; so many `rows` share one entry."""

    part: str
    by_step: int = 0
    by_row: int = 0
    begin: int = 0
    rows: int = 1

    def turned(self, steps: int) -> Place:
        """Return the place with steps counted from the end."""
        return self._replace(begin=self.begin + (steps - 1) * self.by_step, by_step=-self.by_step)

    def at(self, step: int, row: int) -> tuple[str, int]:
        """Return the part and the offset of a row of a step."""
        return self.part, self.begin + step * self.by_step + row // self.rows * self.by_row


Places = dict[str, Place]  # by the name of a pointer


@lru_cache(maxsize=1024)
def forward_launches(
    plan: KernelPlan, extent: Extent, cuts: Cuts, keeps: bool, from_end: bool
) -> list[list[LoopLaunch]]:
    """Return the launches of each chunk."""
    by_step = _by_step(extent, from_end=from_end, logits="gates", outputs="y", cells="cells")
    by_chunk = _states(extent, last_hidden="last_h", last_cell="last_c")
    before, first = (_states(extent, hidden=f"{when}_h", cell=f"{when}_c") for when in ("last", "first"))
    fixed = {"bias": Place("bias"), "weights": Place("packed")}

    def places(number: int, start: int) -> list[tuple[Places, int]]:
        begin = (before, number - 1) if number else (first, 0)
        return [(fixed, 0), (by_step, start), (by_chunk, number), begin]

    return _launches(plan, extent, cuts, places, ForwardArguments(keeps=keeps), from_end=from_end)


@lru_cache(maxsize=1024)
def backward_launches(
    plan: KernelPlan, extent: Extent, cuts: Cuts, strides: tuple[int, int], from_end: bool
) -> list[list[LoopLaunch]]:
    """Return the launches of each chunk; `strides` are those of dy, by step and by row."""
    itemsize, chunks = extent.dtype.itemsize, len(cuts) - 1
    d_y = Place("d_y", itemsize * strides[0], itemsize * strides[1])
    by_step = _by_step(extent, from_end=from_end, gates="gates", cells="cells", outputs="y", d_logits="d_logits")
    by_step["d_outputs"] = d_y.turned(extent.steps) if from_end else d_y
    by_chunk = _states(extent, d_hidden="d_hidden", d_cell="d_cell")
    by_chunk["d_bias"] = Place("d_sums", 4 * extent.pairs * extent.columns, 4 * extent.columns, rows=2)
    after = _states(extent, d_last_hidden="d_hidden", d_last_cell="d_cell")
    last = _states(extent, d_last_hidden="d_last_h", d_last_cell="d_last_c")
    fixed = {"weights": Place("packed")}

    def places(number: int, start: int) -> list[tuple[Places, int]]:
        end = (after, number + 1) if number + 1 < chunks else (last, 0)
        return [(fixed, 0), (by_step, start), (by_chunk, number), end]

    arguments = BackwardArguments(step_stride=-strides[0] if from_end else strides[0], row_stride=strides[1])
    return _launches(plan, extent, cuts, places, arguments, from_end=from_end)


def _launches(
    plan: KernelPlan,
    extent: Extent,
    cuts: Cuts,
    places: Callable[[int, int], list[tuple[Places, int]]],
    common: ForwardArguments | BackwardArguments,
    *,
    from_end: bool,
) -> list[list[LoopLaunch]]:
    """Return the launches of each chunk: of `places`, each with a step or chunk, those of its rows."""
    found: list[list[LoopLaunch]] = []
    rows, exchange = range(0, extent.batch, plan.batch), 0
    lengths = {"lengths": Place("lengths", 4 * extent.batch, 4)}
    size = sizes(plan)
    begins = {"exchange": 0, "counters": size.exchange, "failed": size.exchange + size.counters}
    zeros = {name: Place("zeros", size.space, begin=begin) for name, begin in begins.items()}  # each launch has its own
    zeros["told"] = Place("told")
    for number, (start, steps) in enumerate(spans(cuts)):
        found.append([])
        for row in rows:
            every = [*places(number, start), (lengths, number), (zeros, exchange)]
            pointers = tuple((name, *place.at(at, row)) for group, at in every for name, place in group.items())
            arguments = type(common).from_buffer_copy(common)
            arguments.steps, arguments.by_step = steps, -extent.batch if from_end else extent.batch
            arguments.rows, arguments.width = min(plan.batch, extent.batch - row), extent.units
            arguments.groups = plan.groups
            found[-1].append(LoopLaunch(arguments, pointers))
            exchange += 1
    return found


def _by_step(extent: Extent, *, from_end: bool, **parts: str) -> Places:
    """Return the places of parts with an entry per step: gates of all slots, or states, of which there is one more."""
    found = {}
    for name, part in parts.items():
        is_state = part in ("y", "cells")
        by_row = extent.dtype.itemsize * (extent.units if is_state else extent.columns)
        place = Place(part, extent.batch * by_row, by_row)
        found[name] = place.turned(extent.steps + is_state) if from_end else place
    return found


def _states(extent: Extent, **parts: str) -> Places:
    """Return the places of parts with a state per chunk, in float32."""
    return {name: Place(part, 4 * extent.batch * extent.units, 4 * extent.units) for name, part in parts.items()}


def launches_of(plan: KernelPlan, batch: int) -> int:
    """Return how many launches read the whole batch."""
    return -(-batch // plan.batch)
