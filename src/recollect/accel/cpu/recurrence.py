"""RNN, GRU and LSTM on a CPU, by a kernel in C for the time loop; forward and backward.

torch reads RNN and GRU step by step: every step's matmul reads the weights as they are stored, every step adds to their
gradients, and every operation has its overhead. Here the weights are packed for the recurrent matmul, a step is one
pass, and each thread reads the whole sequence with its own rows, so that none waits. All that does not depend on the
step before is a large matmul by torch, before the time loop or after it.

The readable form is the layer's own `read`. See docs/decisions/0013-cpu-recurrences.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.accel.cell_inputs import CellInputs, is_as_written, is_traced
from recollect.accel.cpu.time_loop import DTYPES, TimeLoop, library_for
from recollect.layers.recurrent.recurrence import Hidden, Recurrence

# Where it is faster, as measured (benchmarks/recurrences.py):
FEWEST = 1 << 18  # multiplications in all recurrent steps together: fewer do not repay a second of compilation
FEWEST_STEPS = 8  # packing the weights costs as much as some steps
FEWEST_READ = 64  # rows times steps, where no gradients are needed
FEWEST_LEARNT, FEWEST_EACH = 4096, 8  # rows times steps, and rows of a thread: below, oneDNN's LSTM is as fast
NEAR = 2 << 20  # bytes of weights that a thread reads at every step in the time of torch's overhead for one

Plain = Callable[[CellInputs], list[Tensor]]  # all outputs, the last h and c, by torch's operations
H = TypeVar("H", bound=Hidden)


def read_layer(layer: Recurrence[H], x: Tensor, memory: H | None, valid: Tensor | None) -> tuple[Tensor, H] | None:
    """Read with a recurrent layer by the C kernel; None where there is none for it, or torch is as fast.

    Not where a weight is computed from others at every call.
    """
    kind = layer.kernel
    if kind is None or x.shape[1] < FEWEST_STEPS or not layer.has_own_weights or not is_as_written(layer):
        return None
    given = CellInputs.of(layer, x, memory)
    if not is_faster(kind, given, is_ragged=valid is not None):
        return None
    if memory is None:
        memory = layer.initial_memory(len(x), like=x)
        given = CellInputs.of(layer, x, memory)
    lengths = None if valid is None else valid.sum(1)
    y, *last = read(kind, given, lengths, lambda given: _read_with_torch(layer, given, memory, valid))
    return y, _replace(memory, last)


def _read_with_torch(layer: Recurrence[H], given: CellInputs, memory: H, valid: Tensor | None) -> list[Tensor]:
    """Read by torch's operations, with the given tensors, which may be others than the layer's and the memory's."""
    twin = copy.copy(layer)
    twin._parameters = dict(zip(layer._parameters, given[3:], strict=True))  # type: ignore[arg-type]
    y, after = twin.read(given.x, _replace(memory, [t for t in given[1:3] if t is not None]), valid)
    return [y, *after.tensors().values()]


def _replace(memory: H, tensors: list[Tensor]) -> H:
    return type(memory)(**dict(zip(memory.tensors(), tensors, strict=True)))


def is_faster(kind: str, given: CellInputs, is_ragged: bool) -> bool:
    """Return whether the kernel is used. Depends on the arguments alone, not on earlier calls: same call, same bits."""
    x, (rows, steps, _) = given.x, given.x.shape
    is_known = x.device.type == "cpu" and x.dtype in DTYPES
    if not is_known or rows * steps * given.w_hh.numel() < FEWEST:
        return False
    if not _is_quicker(kind, given, is_ragged) or is_traced() or torch.is_autocast_enabled("cpu"):
        return False
    is_plain = all(type(t) in (Tensor, nn.Parameter) for t in given.tensors())
    return is_plain and library_for(x.dtype) is not None


def _is_quicker(kind: str, given: CellInputs, is_ragged: bool) -> bool:
    """Return whether torch would take longer."""
    x, (rows, steps, _), threads = given.x, given.x.shape, torch.get_num_threads()
    if x.dtype == torch.bfloat16:
        return True  # otherwise read step by step
    if kind == "lstm" and x.dtype == torch.float32 and not is_ragged:  # torch has oneDNN's
        return given.needs_gradients() and rows * steps >= FEWEST_LEARNT and rows >= FEWEST_EACH * threads
    idle = max(0, 1 - rows / threads)  # threads without a row: torch would divide the weights among them
    return given.needs_gradients() or (rows * steps >= FEWEST_READ and idle * given.w_hh.nbytes <= NEAR)


def read(kind: str, given: CellInputs, lengths: Tensor | None, plain: Plain) -> list[Tensor]:
    """Return all outputs (B, T, H), zero where a row has ended, and the last h, for an LSTM also c.

    `kind` is one of KINDS; `lengths` (B,) are the rows' own, None: all are as long as x. Gradients that will be
    differentiated again are computed through `plain`.
    """
    if given.needs_gradients():
        found = _Recurrence.apply(kind, lengths, plain, *given)  # type: ignore[no-untyped-call]
    else:
        y, _, *last = _time_loop(kind, given, lengths).forwards(given.w_hh, given.b_hh, is_kept=False)
        found = (y, *last)
    return [t for t in found if t is not None]


def _time_loop(kind: str, given: CellInputs, lengths: Tensor | None, gates: Tensor | None = None) -> TimeLoop:
    library = library_for(given.x.dtype)
    assert library is not None
    if gates is None:
        gates = F.linear(given.x, given.w_ih, given.b_ih).contiguous()  # (B, T, G·H)
    c = None if given.c is None else given.c.contiguous()
    assert given.h is not None
    return TimeLoop(kind, library, lengths, gates, given.h.contiguous(), c)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, lengths: Tensor | None, plain: Plain, *given: Tensor) -> tuple[Tensor | None, ...]:
        loop = _time_loop(kind, CellInputs(*given), lengths)
        y, inner, *last = loop.forwards(CellInputs(*given).w_hh, CellInputs(*given).b_hh, is_kept=True)
        ctx.kind, ctx.plain = kind, plain
        ctx.save_for_backward(*given, lengths, loop.gates, y, inner)
        return y, *last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, lengths, gates, y, inner = ctx.saved_tensors
        given, wants = CellInputs(*tensors), CellInputs(*ctx.needs_input_grad[3:])
        if torch.is_grad_enabled():  # create_graph
            return None, None, None, *_differentiable(ctx.plain, given, wants, [dy, dh, dc])
        loop = _time_loop(ctx.kind, given, lengths, gates)
        d_gates, d_inner, d_first, d_cell = loop.backwards(given.w_hh, y, inner, dy, dh, dc)
        assert d_gates is not None
        return None, None, None, *_gradients(given, wants, y, d_gates, d_inner, d_first, d_cell)


def _differentiable(
    plain: Plain, given: CellInputs, wants: CellInputs, upstream: list[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients by torch's operations, so that they can be differentiated themselves."""
    leaves = [t for t, is_wanted in zip(given, wants, strict=True) if t is not None and is_wanted]
    found = plain(given)
    gradients = iter(torch.autograd.grad(found, leaves, upstream[: len(found)], create_graph=True))
    return [next(gradients) if is_wanted else None for is_wanted in wants]


def _gradients(
    given: CellInputs,
    wants: CellInputs,
    y: Tensor,
    d_gates: Tensor,
    d_inner: Tensor | None,
    d_first: Tensor | None,
    d_cell: Tensor | None,
) -> list[Tensor | None]:
    """Return the gradients of all that was given, in its order, from those of every step's two matrix products."""
    assert given.h is not None
    from_x = d_gates.flatten(0, 1)  # (B·T, G·H)
    from_h = [from_x] if d_inner is None else [from_x[:, : 2 * y.shape[2]], d_inner.flatten(0, 1)]  # side by side
    before = torch.cat([given.h[:, None], y[:, :-1]], dim=1).flatten(0, 1)  # (B·T, H)
    return [
        (from_x @ given.w_ih).view(given.x.shape) if wants.x else None,
        d_first if wants.h else None,
        d_cell if wants.c else None,
        from_x.t() @ given.x.flatten(0, 1) if wants.w_ih else None,
        torch.cat([d.t() @ before for d in from_h]) if wants.w_hh else None,
        from_x.sum(0) if wants.b_ih else None,
        torch.cat([d.sum(0) for d in from_h]) if wants.b_hh else None,
    ]
