"""RNN, GRU and LSTM on a CPU, by a kernel in C that walks through time; forwards and backwards.

torch reads RNN and GRU step by step: every step's product reads the weights as they lie, every step adds its own share
to their gradients, and every operation on the way has its price. Here the recurrent product has weights laid out for
it, a step is one pass, and each thread walks through the whole sequence with its own rows, so that none waits. All that
does not hang on the step before is a large product of torch's, before the walk or after it.

The readable form is the layer's own `read`. See docs/decisions/0013-cpu-recurrences.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from recollect.accel.cpu.time_loop import DTYPES, Walk, library_for

# Where it pays, measured (benchmarks/recurrences.py):
FEWEST = 1 << 18  # products of two numbers, in all recurrent steps together: fewer are not worth a compiler's second
FEWEST_STEPS = 8  # laying the weights out costs as much as some steps
FEWEST_READ = 64  # rows times steps, where no gradients are wanted
FEWEST_LEARNT, FEWEST_EACH = 4096, 8  # rows times steps, and rows of a thread: below, oneDNN's LSTM is as quick
NEAR = 2 << 20  # bytes of weights that a thread reads at every step in the time that torch takes to begin one


class Given(NamedTuple):
    """What is read, from where, and with which weights, in torch's layout."""

    x: Tensor  # (B, T, D)
    h: Tensor | None  # (B, H); None: zeros, where a kernel writes them itself
    c: Tensor | None  # an LSTM's
    w_ih: Tensor  # (G·H, D)
    w_hh: Tensor  # (G·H, H)
    b_ih: Tensor | None
    b_hh: Tensor | None

    def tensors(self) -> list[Tensor]:
        """Give those that there are."""
        return [t for t in self if t is not None]

    def is_kept(self) -> bool:
        """Whether gradients are wanted."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors())


Plain = Callable[[Given], list[Tensor]]  # all outputs, the last h and c, by torch's operations


def pays(kind: str, given: Given, is_ragged: bool) -> bool:
    """Whether to read here. Hangs on what is given alone, not on what was read before: same call, same bits."""
    x, (rows, steps, _) = given.x, given.x.shape
    is_known = x.device.type == "cpu" and x.dtype in DTYPES
    if not is_known or steps < FEWEST_STEPS or rows * steps * given.w_hh.numel() < FEWEST:
        return False
    return _is_quicker(kind, given, is_ragged) and _is_eager(given) and library_for(x.dtype) is not None


def _is_quicker(kind: str, given: Given, is_ragged: bool) -> bool:
    """Whether torch would take longer."""
    x, (rows, steps, _), threads = given.x, given.x.shape, torch.get_num_threads()
    if x.dtype == torch.bfloat16:
        return True  # read plainly otherwise
    if kind == "lstm" and x.dtype == torch.float32 and not is_ragged:  # torch has oneDNN's
        return given.is_kept() and rows * steps >= FEWEST_LEARNT and rows >= FEWEST_EACH * threads
    idle = max(0, 1 - rows / threads)  # threads without a row: torch would let them read weights
    return given.is_kept() or (rows * steps >= FEWEST_READ and idle * given.w_hh.nbytes <= NEAR)


def _is_eager(given: Given) -> bool:
    """Whether these are plain tensors, and nobody but autograd follows what is done to them."""
    if is_followed() or torch.is_autocast_enabled("cpu"):
        return False
    return all(type(t) in (Tensor, nn.Parameter) for t in given.tensors())


def is_followed() -> bool:
    """Whether anybody but autograd follows what is done: a kernel is nothing that they know."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    )


def read(kind: str, given: Given, lengths: Tensor | None, plain: Plain) -> list[Tensor]:
    """Give all outputs (B, T, H), zero where a row has ended, and the last h, for an LSTM also c.

    `kind` is one of KINDS; `lengths` (B,) are the rows' own, None: all are as long as x. Gradients that are to be
    differentiated again are computed through `plain`.
    """
    if given.is_kept():
        found = _Recurrence.apply(kind, lengths, plain, *given)  # type: ignore[no-untyped-call]
    else:
        y, _, *last = _walk(kind, given, lengths).forwards(given.w_hh, given.b_hh, is_kept=False)
        found = (y, *last)
    return [t for t in found if t is not None]


def _walk(kind: str, given: Given, lengths: Tensor | None, gates: Tensor | None = None) -> Walk:
    library = library_for(given.x.dtype)
    assert library is not None
    if gates is None:
        gates = F.linear(given.x, given.w_ih, given.b_ih).contiguous()  # (B, T, G·H)
    c = None if given.c is None else given.c.contiguous()
    assert given.h is not None
    return Walk(kind, library, lengths, gates, given.h.contiguous(), c)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, lengths: Tensor | None, plain: Plain, *given: Tensor) -> tuple[Tensor | None, ...]:
        walk = _walk(kind, Given(*given), lengths)
        y, inner, *last = walk.forwards(Given(*given).w_hh, Given(*given).b_hh, is_kept=True)
        ctx.kind, ctx.plain = kind, plain
        ctx.save_for_backward(*given, lengths, walk.gates, y, inner)
        return y, *last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, lengths, gates, y, inner = ctx.saved_tensors
        given, wants = Given(*tensors), Given(*ctx.needs_input_grad[3:])
        if torch.is_grad_enabled():  # create_graph
            return None, None, None, *_differentiable(ctx.plain, given, wants, [dy, dh, dc])
        walk = _walk(ctx.kind, given, lengths, gates)
        d_gates, d_inner, d_first, d_cell = walk.backwards(given.w_hh, y, inner, dy, dh, dc)
        assert d_gates is not None
        return None, None, None, *_gradients(given, wants, y, d_gates, d_inner, d_first, d_cell)


def _differentiable(plain: Plain, given: Given, wants: Given, upstream: list[Tensor | None]) -> list[Tensor | None]:
    """Give the gradients by torch's operations, so that they can be differentiated themselves."""
    leaves = [t for t, is_wanted in zip(given, wants, strict=True) if t is not None and is_wanted]
    found = plain(given)
    gradients = iter(torch.autograd.grad(found, leaves, upstream[: len(found)], create_graph=True))
    return [next(gradients) if is_wanted else None for is_wanted in wants]


def _gradients(
    given: Given,
    wants: Given,
    y: Tensor,
    d_gates: Tensor,
    d_inner: Tensor | None,
    d_first: Tensor | None,
    d_cell: Tensor | None,
) -> list[Tensor | None]:
    """Give the gradients of all that was given, in its order, from those of every step's two products."""
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
