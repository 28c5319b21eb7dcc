"""Recurrent layers in one launch: a kernel keeps W_hh in registers and walks all steps (Diamos et al. 2016).

W_ih x of all steps is one large product before the walk, and the gradients of weights and inputs are large products
after it. For Hopper GPUs, in bf16 and fp16. `REASONS` says why it is not used where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from recollect.kernels import nvrtc, slower
from recollect.kernels.driver import Cuda, DriverError
from recollect.kernels.finishing import weight_gradients
from recollect.kernels.launching import Machine, Seen, run_backward, run_forward
from recollect.kernels.nvrtc import NoCudaCompiler
from recollect.kernels.plans import Plan, offer
from recollect.kernels.preparing import prepare_backward, prepare_forward
from recollect.kernels.recurrences import Given

REASONS: dict[str, str] = {}  # by device: why the plain path is taken there
NARROW = (torch.bfloat16, torch.float16)
FEWEST_STEPS = 16  # below, packing and launching cost more than the library's steps

_machines: dict[torch.device, Machine] = {}
_plans: dict[tuple[Any, ...], Plan | None] = {}


class KernelGaveUp(RuntimeError):
    """A block waited for another for seconds: the results of that walk are rubbish."""


class _Switch(local):
    on = True


_switch = _Switch()


@contextmanager
def disabled() -> Iterator[None]:
    """Take the library's path in this thread, for comparison."""
    before, _switch.on = _switch.on, False
    try:
        yield
    finally:
        _switch.on = before


def takes(cell: str, x: Tensor, hidden: int) -> bool:
    """Whether a kernel can read x (B, T, D), and pays."""
    if torch.compiler.is_compiling() or not _switch.on or x.shape[1] < FEWEST_STEPS or x.numel() == 0:
        return False
    if forward_ad._current_level >= 0:
        return False
    dtype, trains = compute_dtype(x), torch.is_grad_enabled()
    if dtype not in NARROW or slower.plain_is_faster(cell, dtype, len(x), hidden, trains=trains):
        return False
    directions = ("forward", "backward") if trains else ("forward",)
    return all(find_plan(d, cell, dtype, len(x), hidden, x.device) for d in directions)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Give the dtype that products are made in: autocast's, which spares float64, or that of x."""
    kind = x.device.type
    is_cast = x.dtype is not torch.float64 and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype


def find_machine(device: torch.device) -> Machine | None:
    """Give what runs kernels on a device, or None and a reason."""
    if device not in _machines and str(device) not in REASONS:
        if device.type != "cuda":
            REASONS[str(device)] = "not a CUDA device"
        elif torch.cuda.get_device_capability(device) != (9, 0):
            REASONS[str(device)] = "not a Hopper GPU (compute capability 9.0)"
        else:
            _machines[device] = Cuda(device)
    return _machines.get(device)


def why_not(device: torch.device) -> str | None:
    """Say why kernels cannot be used on a device, None where they can; asks for the compiler, compiles nothing."""
    if find_machine(device) is not None:
        try:
            nvrtc.load()
        except NoCudaCompiler as error:
            return str(error)
    return REASONS.get(str(device))


def find_plan(
    direction: str, cell: str, dtype: torch.dtype, batch: int, hidden: int, device: torch.device
) -> Plan | None:
    """Give the fastest plan that fits, compiled; None and a reason where there is none."""
    machine = find_machine(device)
    key = (direction, cell, dtype, batch, hidden, device)
    if machine is None:
        return None
    if key not in _plans:
        try:
            plans = offer(direction, cell, dtype == torch.float16, batch, hidden, machine.chip)
            _plans[key] = next((plan for plan in plans if machine.fits(plan)), None)
        except (NoCudaCompiler, DriverError, OSError) as error:
            _plans[key], REASONS[str(device)] = None, str(error)
            _machines.pop(device, None)
    return _plans[key]


def check() -> None:
    """Raise if a kernel gave up, and use none on that device any more; does not wait for the GPU."""
    for device, machine in list(_machines.items()):
        if machine.told.value:
            del _machines[device]
            REASONS[str(device)] = "a kernel gave up waiting"
            raise KernelGaveUp(
                f"on {device} a recurrent kernel gave up waiting for its other blocks: results are wrong"
            )


def read(cell: str, given: Given, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Read x (B, T, D): y (B, T, H), and the last h and c (B, H); rows stand still from their length on."""
    check()
    lengths = None if valid is None else valid.sum(1, dtype=torch.int32)
    if not given.is_kept():
        return _walk(cell, lengths, given, keeps=False)[1]
    result: tuple[Tensor, Tensor, Tensor | None] = _Read.apply(cell, lengths, *given)  # type: ignore[no-untyped-call]
    return result


def _walk(cell: str, lengths: Tensor | None, given: Given, *, keeps: bool) -> tuple[Any, ...]:
    """Give what backward needs, and what `read` gives."""
    (batch, steps, _), hidden, dtype = given.x.shape, given.h.shape[1], compute_dtype(given.x)
    plan, machine = _ready("forward", cell, dtype, batch, hidden, given.x.device)
    ready, by_time, weight = prepare_forward(machine, plan, given, dtype)
    logits = F.linear(by_time, weight).view(steps, batch, hidden, -1)
    seen, last_h, last_c = run_forward(machine, plan, logits, ready, lengths, keeps=keeps)
    last_c = None if last_c is None or given.c is None else last_c.to(given.c.dtype)
    return (*seen, by_time, weight), (seen.y[1:].transpose(0, 1), last_h.to(given.h.dtype), last_c)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cell: str, lengths: Tensor | None, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        given = Given(*tensors)
        seen, found = _walk(cell, lengths, given, keeps=True)
        wants = zip(given, ctx.needs_input_grad[2:], strict=True)
        ctx.cell, ctx.wanted = cell, Given(*(t.dtype if is_wanted else None for t, is_wanted in wants))  # type: ignore[arg-type, union-attr]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*seen, given.w_hh)
        y, last_h, last_c = found
        return y, last_h, last_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor | None, d_h: Tensor | None, d_c: Tensor | None) -> tuple[Any, ...]:
        *tensors, by_time, weight, w_hh = ctx.saved_tensors
        seen, wanted = Seen(*tensors), ctx.wanted
        steps, batch, hidden, slots = seen.gates.shape
        plan, machine = _ready("backward", ctx.cell, seen.y.dtype, batch, hidden, seen.y.device)
        ready = prepare_backward(machine, plan, w_hh, batch, seen.y.dtype)
        d_y = None if d_y is None else d_y.transpose(0, 1)
        d_logits, d_first, d_cell, d_bias = run_backward(machine, plan, seen, ready, d_y, d_h, d_c)
        flat = d_logits.view(steps * batch, hidden * slots)
        d_x = (flat @ weight).view(steps, batch, -1).transpose(0, 1) if wanted.x else None
        before = seen.y[:-1].view(steps * batch, hidden)
        d_weights = weight_gradients(machine, plan, flat, by_time, before, d_bias, wanted)
        return None, None, d_x, d_first if wanted.h else None, d_cell if wanted.c else None, *d_weights


def _ready(
    direction: str, cell: str, dtype: torch.dtype, batch: int, hidden: int, device: torch.device
) -> tuple[Plan, Machine]:
    plan, machine = find_plan(direction, cell, dtype, batch, hidden, device), find_machine(device)
    if plan is None or machine is None:
        raise RuntimeError(f"no recurrent kernel for {batch} x {hidden} on {device}: ask `takes` first")
    return plan, machine
