"""Several persistent kernels on one chip: layers beside each other, layers stacked, and matrix products beside them.

Time is cut into chunks. In a stack one layer reads a chunk while the next reads the chunk before it, as a wavefront; in
backward the large matrix products of a chunk are computed while the kernel reads the chunk before it. Which task waits
for which is decided here, `streams.py` does the waiting, and a `Placement` holds how many kernels run at once and in
chunks of how many steps. The results are those of one kernel after the other, but for the order in which gradients of
weights are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda.recurrent import precision
from recollect.accel.cuda.recurrent.passes import Found, Kept, Reading, Returning, Setting
from recollect.accel.cuda.recurrent.streams import Schedule, StreamTask, perform

FIELDS = len(CellInputs._fields)


def urgency(at_once: int) -> list[int]:
    """Lanes: of what comes first, of the walks, of the products that a walk waits for, and of those that can wait."""
    return [0] + [2] * at_once + [1, 0]


def _product_lanes(at_once: int) -> tuple[int, int]:
    """Of products that a walk waits for, and of those that can wait."""
    return at_once + 1, at_once + 2


class Do(NamedTuple):
    """A method of a `Reading` or `Returning`, for a layer and a piece."""

    name: str
    layer: int
    piece: int


@lru_cache(maxsize=1024)
def forward_tasks(layers: int, pieces: int, at_once: int, *, is_pile: bool) -> Schedule:
    """List the ways forward: a piece's product, which in a pile waits for the layer below, then its walk.

    The very first product is not among them: it is asked for before lanes part.
    """
    tasks: list[StreamTask] = []
    walks: dict[tuple[int, int], StreamTask] = {}
    awaited, rest = _product_lanes(at_once)
    beside = awaited if is_pile else rest  # the next walk of a single layer is far off
    for wave in _waves(layers, pieces, is_pile=is_pile):
        for layer, piece in wave:
            below = (walks[layer - 1, piece],) if is_pile and layer else ()
            product = [StreamTask(beside, Do("multiply", layer, piece), below)] if walks else []
            before = [walks[layer, piece - 1]] if piece else []
            walk = _walk(walks, at_once, Do("step", layer, piece), (*product, *before))
            tasks += [*product, walk]
    return Schedule(tasks)


def _walk(
    walks: dict[tuple[int, int], StreamTask], at_once: int, what: Do, after: tuple[StreamTask, ...]
) -> StreamTask:
    """Return the next walk a lane: the first goes with the caller, and never are more side by side than fit."""
    many, first = len(walks), next(iter(walks.values()), None)
    if first is not None and many == at_once and first not in after:  # whose lane it would share
        after = (*after, first)
    walks[what.layer, what.piece] = task = StreamTask(1 + many % at_once if many else 0, what, after)
    return task


@lru_cache(maxsize=1024)
def backward_tasks(layers: int, pieces: int, at_once: int, *, is_pile: bool) -> Schedule:
    """List the ways back: a piece's walk, which in a pile waits for dx of the layer above, then its products.

    Products that nobody waits for are listed after the walks of the next wave: these shall find the chip free.
    """
    tasks: list[StreamTask] = []
    later: list[StreamTask] = []
    walks: dict[tuple[int, int], StreamTask] = {}
    passed: dict[tuple[int, int], StreamTask] = {}
    awaited, rest = _product_lanes(at_once) if layers * pieces > 1 else (0, 0)
    for wave in _waves(layers, pieces, is_pile=is_pile):
        found: list[StreamTask] = []
        for from_top, from_end in wave:
            layer, piece = layers - 1 - from_top, pieces - 1 - from_end
            before = [walks[layer, piece + 1]] if from_end else []
            before += [passed[layer + 1, piece]] if is_pile and from_top else []
            walk = _walk(walks, at_once, Do("step", layer, piece), tuple(before))
            down = StreamTask(awaited if is_pile else rest, Do("pass_down", layer, piece), (walk,))
            weigh = StreamTask(rest, Do("weigh", layer, piece), (walk, down))
            passed[layer, piece] = down
            tasks += [walk, down] if is_pile else [walk]
            found += [weigh] if is_pile else [down, weigh]
        tasks, later = tasks + later, found
    return Schedule(tasks + later)


def _perform(schedule: Schedule, layers: Sequence[Any], device: torch.device, at_once: int) -> None:
    if len(schedule.lanes) > 1:  # memory belongs to the stream that asks for it: the current one, before lanes part
        for layer in layers:
            layer.allocate()
    perform(schedule, lambda do: getattr(layers[do.layer], do.name)(do.piece), device, urgency(at_once))


def _waves(layers: int, pieces: int, *, is_pile: bool) -> list[list[tuple[int, int]]]:
    """Order layers and pieces by when they can be read: in a pile, each layer a piece behind the one below."""
    waves: list[list[tuple[int, int]]] = [[] for _ in range(pieces + (layers - 1) * is_pile)]
    for layer in range(layers):
        for piece in range(pieces):
            waves[piece + layer * is_pile].append((layer, piece))
    return waves


def read(setting: Setting, lengths: Tensor | None, givens: Sequence[CellInputs]) -> list[Found]:
    """Read with several layers of the same shape: y, the last h and c of each; in a pile only the top one's y."""
    if setting.back is None:
        with precision.of_products(setting.extent.dtype):
            return _ahead(setting, lengths, givens)[1]
    flat = (t for given in givens for t in given)
    found = _WavefrontRead.apply(setting, lengths, *flat)  # type: ignore[no-untyped-call]
    return [tuple(found[i : i + 3]) for i in range(0, len(found), 3)]


def _ahead(setting: Setting, lengths: Tensor | None, givens: Sequence[CellInputs]) -> tuple[list[Reading], list[Found]]:
    readings: list[Reading] = []
    for given in givens:
        extent, x, is_first = setting.extent, None, not readings
        if not is_first:
            x = _shared_x(setting, readings[-1])
            extent = extent._replace(width=given.w_ih.shape[1], has_x=x is None)
        readings.append(Reading(setting, extent, given, lengths, x, from_end=setting.both_ways and not is_first))
        if is_first:  # the GPU has something to do while the rest is got ready
            readings[0].multiply(0)
    many, first = (len(readings), readings[0].rows.pieces, setting.ahead.at_once), givens[0].x
    _perform(forward_tasks(*many, is_pile=setting.is_pile), readings, first.device, setting.ahead.at_once)
    shown = range(len(givens))[-1:] if setting.is_pile else range(len(givens))
    pairs = enumerate(zip(readings, givens, strict=True))
    return readings, [one.found(given, first, has_y=i in shown) for i, (one, given) in pairs]


def _shared_x(setting: Setting, before: Reading) -> Tensor | None:
    """Return what a layer reads, step by step (T·B, D), where the layer before it has that already."""
    if setting.is_pile:
        return before.y.flatten(0, 1)
    return before.x if setting.both_ways else None


class _WavefrontRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: Setting, lengths: Tensor | None, *tensors: Any) -> tuple[Any, ...]:
        givens = [CellInputs(*tensors[i : i + FIELDS]) for i in range(0, len(tensors), FIELDS)]
        with precision.of_products(setting.extent.dtype):
            readings, found = _ahead(setting, lengths, givens)
        dtypes = [t.dtype if wants else None for t, wants in zip(tensors, ctx.needs_input_grad[2:], strict=True)]
        ctx.setting, ctx.wanted = setting, [CellInputs(*dtypes[i : i + FIELDS]) for i in range(0, len(dtypes), FIELDS)]  # type: ignore[arg-type]
        ctx.set_materialize_grads(False)
        ctx.extents, ctx.layouts = [r.extent for r in readings], [r.rooms[1].layout for r in readings]
        pairs = zip(readings, givens, strict=True)
        ctx.save_for_backward(*(t for r, g in pairs for t in (*r.kept, g.w_hh)))
        return tuple(t for one in found for t in one)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        setting, saved, fields = ctx.setting, ctx.saved_tensors, len(Kept._fields)
        kept = [Kept(*saved[i : i + fields]) for i in range(0, len(saved), fields)]
        returnings: list[Returning] = []  # from the top
        for layer in reversed(range(len(kept))):
            d_y, *d_last = upstream[3 * layer : 3 * layer + 3]
            is_below, is_above = setting.is_pile and layer + 1 < len(kept), setting.is_pile and layer > 0
            d_y = returnings[-1].d_x if is_below else None if d_y is None else d_y.transpose(0, 1)
            own = (setting.back, ctx.extents[layer], ctx.layouts[layer], kept[layer])
            upon = (d_y, (d_last[0], d_last[1]), ctx.wanted[layer])
            returnings.append(Returning(*own, *upon, is_above=is_above, from_end=setting.both_ways and layer > 0))
        returnings.reverse()
        many = len(returnings), returnings[0].rows.pieces, setting.back.at_once
        with precision.of_products(setting.extent.dtype):
            schedule = backward_tasks(*many, is_pile=setting.is_pile)
            _perform(schedule, returnings, kept[0].y.device, setting.back.at_once)
            return None, None, *(t for one in returnings for t in one.found())
