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
from torch.autograd.function import once_differentiable

from recollect.kernels import nvrtc, slower
from recollect.kernels.driver import Cuda, DriverError
from recollect.kernels.launching import Machine, Seen, run_backward, run_forward
from recollect.kernels.nvrtc import NoCudaCompiler
from recollect.kernels.packing import HIDDEN_SLOTS, INPUT_SLOTS, Weights, from_slots, join_biases, to_slots
from recollect.kernels.plans import Plan, offer

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
    dtype, trains = compute_dtype(x), torch.is_grad_enabled()
    if dtype not in NARROW or slower.plain_is_faster(cell, dtype, len(x), hidden, trains=trains):
        return False
    directions = ("forward", "backward") if trains else ("forward",)
    return all(find_plan(d, cell, dtype, len(x), hidden, x.device) for d in directions)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Give the dtype that products are made in: autocast's, or that of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


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
        if machine.told.item():
            del _machines[device]
            REASONS[str(device)] = "a kernel gave up waiting"
            raise KernelGaveUp(
                f"on {device} a recurrent kernel gave up waiting for its other blocks: results are wrong"
            )


def read(
    cell: str,
    x: Tensor,
    weights: Weights,
    hidden: Tensor,
    cell_state: Tensor | None,
    valid: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Read x (B, T, D): y (B, T, H), and in float32 the last h and c (B, H)."""
    steps, batch = x.shape[1], len(x)
    weight = to_slots(weights.input, INPUT_SLOTS[cell])  # (H, S, D)
    by_time = x.transpose(0, 1).reshape(steps * batch, -1)  # (T·B, D)
    flat = F.linear(by_time, weight.flatten(0, 1))
    lengths = None if valid is None else valid.sum(1, dtype=torch.int32)
    y, last_hidden, last_cell = walk(
        cell,
        flat.view(steps, batch, *weight.shape[:2]),
        join_biases(cell, weights),
        weights.hidden.to(flat.dtype),
        hidden.float().contiguous(),
        None if cell_state is None else cell_state.float().contiguous(),
        lengths,
    )
    return y.transpose(0, 1), last_hidden, last_cell


def walk(
    cell: str,
    logits: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor,
    hidden: Tensor,
    cell_state: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Give y (T, B, H), and in float32 the last h and c (B, H); rows stand still from their length on.

    `logits` (T, B, H, S) are W_ih x, a unit's slots beside each other. They are written over. `bias` (H, S) is float32.
    """
    check()
    result: tuple[Tensor, Tensor, Tensor | None] = _Walk.apply(  # type: ignore[no-untyped-call]
        cell, logits, bias, weight_hh, hidden, cell_state, lengths
    )
    return result


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: str,
        logits: Tensor,
        bias: Tensor | None,
        weight_hh: Tensor,
        hidden: Tensor,
        cell_state: Tensor | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        plan, machine = _ready("forward", cell, logits)
        keeps = any(ctx.needs_input_grad)
        y, cells, last_hidden, last_cell = run_forward(
            machine, plan, logits, bias, weight_hh, hidden, cell_state, lengths, keeps=keeps
        )
        ctx.cell = cell
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, cells, y, weight_hh, lengths)
        return y[1:], last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor | None, d_hidden: Tensor | None, d_cell: Tensor | None) -> tuple[Any, ...]:
        gates, cells, y, weight_hh, lengths = ctx.saved_tensors
        plan, machine = _ready("backward", ctx.cell, gates)
        seen = Seen(gates, cells, y, weight_hh, lengths)
        d_logits, d_first, d_cell, d_bias = run_backward(machine, plan, seen, d_y, d_hidden, d_cell)
        d_weight = weight_gradient(ctx.cell, d_logits, y) if ctx.needs_input_grad[3] else None
        return None, d_logits, d_bias if ctx.needs_input_grad[2] else None, d_weight, d_first, d_cell, None


def _ready(direction: str, cell: str, logits: Tensor) -> tuple[Plan, Machine]:
    plan = find_plan(direction, cell, logits.dtype, logits.shape[1], logits.shape[2], logits.device)
    machine = find_machine(logits.device)
    if plan is None or machine is None:
        raise RuntimeError(f"no recurrent kernel for {tuple(logits.shape)} on {logits.device}: ask `takes` first")
    return plan, machine


def weight_gradient(cell: str, d_logits: Tensor, y: Tensor) -> Tensor:
    """dW_hh = Σ_t dgates_t' h_{t-1}, one product. (G·H, H)"""
    steps, batch, hidden, slots = d_logits.shape
    flat = d_logits.reshape(steps * batch, hidden * slots)
    product = flat.mT @ y[:-1].reshape(steps * batch, hidden)  # (H·S, H)
    return from_slots(product.unflatten(0, (hidden, slots)), HIDDEN_SLOTS[cell])
