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
from recollect.accel.cuda.recurrent.passes import BackwardPass, ForwardPass, KeptForBackward, Results, Setting
from recollect.accel.cuda.recurrent.streams import Schedule, StreamTask, perform

FIELDS = len(CellInputs._fields)


def urgency(at_once: int) -> list[int]:
    """Return priorities by stream: the current one, the loops', awaited matmuls', and that of matmuls that can wait."""
    return [0] + [2] * at_once + [1, 0]


def _matmul_streams(at_once: int) -> tuple[int, int]:
    """Return the streams of matmuls that a loop waits for, and of those that can wait."""
    return at_once + 1, at_once + 2


class LayerCall(NamedTuple):
    """A method of a `ForwardPass` or `BackwardPass`, by name, for a layer and a chunk."""

    name: str
    layer: int
    chunk: int


@lru_cache(maxsize=1024)
def forward_tasks(layers: int, chunks: int, at_once: int, *, is_stack: bool) -> Schedule:
    """List the tasks of forward: a chunk's matmul, which in a stack waits for the layer below, then its time loop.

    The very first matmul is not among them: it is launched before other streams are used.
    """
    tasks: list[StreamTask] = []
    loops: dict[tuple[int, int], StreamTask] = {}
    awaited, rest = _matmul_streams(at_once)
    beside = awaited if is_stack else rest  # the next loop of a single layer is not yet due
    for wave in _waves(layers, chunks, is_stack=is_stack):
        for layer, chunk in wave:
            below = (loops[layer - 1, chunk],) if is_stack and layer else ()
            product = [StreamTask(beside, LayerCall("multiply", layer, chunk), below)] if loops else []
            before = [loops[layer, chunk - 1]] if chunk else []
            loop = _add_loop(loops, at_once, LayerCall("step", layer, chunk), (*product, *before))
            tasks += [*product, loop]
    return Schedule(tasks)


def _add_loop(
    loops: dict[tuple[int, int], StreamTask], at_once: int, what: LayerCall, after: tuple[StreamTask, ...]
) -> StreamTask:
    """Add the next loop: the first on the caller's stream, and never more at once than fit."""
    many, first = len(loops), next(iter(loops.values()), None)
    if first is not None and many == at_once and first not in after:  # on whose stream it would run
        after = (*after, first)
    loops[what.layer, what.chunk] = task = StreamTask(1 + many % at_once if many else 0, what, after)
    return task


@lru_cache(maxsize=1024)
def backward_tasks(layers: int, chunks: int, at_once: int, *, is_stack: bool) -> Schedule:
    """List the tasks of backward: a chunk's time loop, which in a stack waits for dx from above, then its matmuls.

    Matmuls that nothing waits for are listed after the loops of the next wave, so that those find the chip idle.
    """
    tasks: list[StreamTask] = []
    later: list[StreamTask] = []
    loops: dict[tuple[int, int], StreamTask] = {}
    passed: dict[tuple[int, int], StreamTask] = {}
    awaited, rest = _matmul_streams(at_once) if layers * chunks > 1 else (0, 0)
    for wave in _waves(layers, chunks, is_stack=is_stack):
        found: list[StreamTask] = []
        for from_top, from_end in wave:
            layer, chunk = layers - 1 - from_top, chunks - 1 - from_end
            before = [loops[layer, chunk + 1]] if from_end else []
            before += [passed[layer + 1, chunk]] if is_stack and from_top else []
            loop = _add_loop(loops, at_once, LayerCall("step", layer, chunk), tuple(before))
            down = StreamTask(awaited if is_stack else rest, LayerCall("pass_down", layer, chunk), (loop,))
            weigh = StreamTask(rest, LayerCall("weigh", layer, chunk), (loop, down))
            passed[layer, chunk] = down
            tasks += [loop, down] if is_stack else [loop]
            found += [weigh] if is_stack else [down, weigh]
        tasks, later = tasks + later, found
    return Schedule(tasks + later)


def _perform(
    schedule: Schedule, layers: Sequence[ForwardPass] | Sequence[BackwardPass], device: torch.device, at_once: int
) -> None:
    if len(schedule.streams) > 1:  # memory belongs to the stream it is allocated on: here the current one
        for layer in layers:
            layer.allocate()
    perform(schedule, lambda do: getattr(layers[do.layer], do.name)(do.chunk), device, urgency(at_once))


def _waves(layers: int, chunks: int, *, is_stack: bool) -> list[list[tuple[int, int]]]:
    """Order layers and chunks by when they can be read: in a stack, each layer a chunk behind the one below."""
    waves: list[list[tuple[int, int]]] = [[] for _ in range(chunks + (layers - 1) * is_stack)]
    for layer in range(layers):
        for chunk in range(chunks):
            waves[chunk + layer * is_stack].append((layer, chunk))
    return waves


def read(setting: Setting, lengths: Tensor | None, givens: Sequence[CellInputs]) -> list[Results]:
    """Read with several layers of the same shape: y, the last h and c of each; in a stack only the top one's y."""
    if setting.backward is None:
        with precision.of_products(setting.extent.dtype):
            return _read_forward(setting, lengths, givens)[1]
    flat = (t for given in givens for t in given)
    found = _WavefrontRead.apply(setting, lengths, *flat)  # type: ignore[no-untyped-call]
    return [tuple(found[i : i + 3]) for i in range(0, len(found), 3)]


def _read_forward(
    setting: Setting, lengths: Tensor | None, givens: Sequence[CellInputs]
) -> tuple[list[ForwardPass], list[Results]]:
    readings: list[ForwardPass] = []
    for given in givens:
        extent, x, is_first = setting.extent, None, not readings
        if not is_first:
            x = _shared_x(setting, readings[-1])
            extent = extent._replace(width=given.w_ih.shape[1], has_x=x is None)
        readings.append(
            ForwardPass(setting, extent, given, lengths, x, from_end=setting.both_directions and not is_first)
        )
        if is_first:  # the GPU is busy while the host prepares the rest
            readings[0].multiply(0)
    many, first = (len(readings), readings[0].rows.chunks, setting.forward.at_once), givens[0].x
    _perform(forward_tasks(*many, is_stack=setting.is_stack), readings, first.device, setting.forward.at_once)
    shown = range(len(givens))[-1:] if setting.is_stack else range(len(givens))
    pairs = enumerate(zip(readings, givens, strict=True))
    return readings, [one.found(given, first, has_y=i in shown) for i, (one, given) in pairs]


def _shared_x(setting: Setting, before: ForwardPass) -> Tensor | None:
    """Return a layer's input, time-major (T·B, D), where the layer before it has that already."""
    if setting.is_stack:
        return before.y.flatten(0, 1)
    return before.x if setting.both_directions else None


class _WavefrontRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: Setting, lengths: Tensor | None, *tensors: Any) -> tuple[Any, ...]:
        givens = [CellInputs(*tensors[i : i + FIELDS]) for i in range(0, len(tensors), FIELDS)]
        with precision.of_products(setting.extent.dtype):
            readings, found = _read_forward(setting, lengths, givens)
        dtypes = [t.dtype if wants else None for t, wants in zip(tensors, ctx.needs_input_grad[2:], strict=True)]
        ctx.setting, ctx.wanted = setting, [CellInputs(*dtypes[i : i + FIELDS]) for i in range(0, len(dtypes), FIELDS)]  # type: ignore[arg-type]
        ctx.set_materialize_grads(False)
        ctx.extents, ctx.layouts = [r.extent for r in readings], [r.workspaces[1].layout for r in readings]
        pairs = zip(readings, givens, strict=True)
        ctx.save_for_backward(*(t for r, g in pairs for t in (*r.kept, g.w_hh)))
        return tuple(t for one in found for t in one)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        setting, saved, fields = ctx.setting, ctx.saved_tensors, len(KeptForBackward._fields)
        kept = [KeptForBackward(*saved[i : i + fields]) for i in range(0, len(saved), fields)]
        returnings: list[BackwardPass] = []  # from the top
        for layer in reversed(range(len(kept))):
            d_y, *d_last = upstream[3 * layer : 3 * layer + 3]
            is_below, is_above = setting.is_stack and layer + 1 < len(kept), setting.is_stack and layer > 0
            d_y = returnings[-1].d_x if is_below else None if d_y is None else d_y.transpose(0, 1)
            own = (setting.backward, ctx.extents[layer], ctx.layouts[layer], kept[layer])
            upon = (d_y, (d_last[0], d_last[1]), ctx.wanted[layer])
            returnings.append(
                BackwardPass(*own, *upon, is_above=is_above, from_end=setting.both_directions and layer > 0)
            )
        returnings.reverse()
        many = len(returnings), returnings[0].rows.chunks, setting.backward.at_once
        with precision.of_products(setting.extent.dtype):
            schedule = backward_tasks(*many, is_stack=setting.is_stack)
            _perform(schedule, returnings, kept[0].y.device, setting.backward.at_once)
            return None, None, *(t for one in returnings for t in one.found())
