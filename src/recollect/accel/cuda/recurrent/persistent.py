"""Recurrent layers in one launch: a persistent kernel keeps W_hh in registers for all steps (Diamos et al. 2016).

W_ih x of all steps is one large matmul before the time loop, and the gradients of weights and inputs are large matmuls
after it, or beside it. For Hopper GPUs, in bf16, fp16, and float32 where tf32 is allowed (`precision.py`). `REASONS`
holds why it is not used on a device; `wavefront.py` schedules several layers and matmuls beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from recollect.accel.cell_inputs import CellInputs, is_traced
from recollect.accel.cuda.driver import Cuda, DriverError
from recollect.accel.cuda.nvrtc import NoCudaCompiler
from recollect.accel.cuda.recurrent import chunks, precision, wavefront
from recollect.accel.cuda.recurrent.execution import Machine
from recollect.accel.cuda.recurrent.passes import Placement, Results, Setting
from recollect.accel.cuda.recurrent.plan import KernelPlan, offer
from recollect.accel.cuda.recurrent.workspace import Extent
from recollect.core.validate import compute_dtype

REASONS: dict[str, str] = {}  # by device: why the plain path is selected there
REDUCED = (torch.bfloat16, torch.float16)
FEWEST_STEPS = 16  # below, packing and launching cost more than cuDNN's steps
FEWEST_BESIDE, FEWEST_STACKED = 64, 256  # below, streams and events cost more than concurrent loops gain
AT_ONCE = {"forward": 3, "backward": 3}  # concurrent loops

_machines: dict[torch.device, Machine] = {}
_plans: dict[tuple[object, ...], KernelPlan | None] = {}


class KernelGaveUp(RuntimeError):
    """A block waited for another for seconds: the results of that launch are invalid."""


def takes(cell: str, x: Tensor, hidden: int) -> bool:
    """Return whether a persistent kernel can read x (B, T, D) and is faster."""
    if is_traced() or x.shape[1] < FEWEST_STEPS or x.numel() == 0:
        return False
    if type(x) not in (Tensor, nn.Parameter):
        return False
    dtype, device = compute_dtype(x), x.device
    if dtype is torch.float32:  # read as tf32; on a CPU nobody asks why not
        if not (device.type == "cuda" or device in _machines):
            return False
        if not precision.may_use_tf32(cell, batch=x.shape[0], inputs=x.shape[2], hidden=hidden):
            return False
    elif dtype not in REDUCED:
        return False
    machine = find_machine(device)
    return machine is not None and _has_plans(machine, cell, dtype, x.shape[0], hidden, device, torch.is_grad_enabled())


@lru_cache(maxsize=1024)
def _has_plans(
    machine: Machine, cell: str, dtype: torch.dtype, batch: int, hidden: int, device: torch.device, trains: bool
) -> bool:
    """Return whether there is a plan for each direction."""
    directions = ("forward", "backward") if trains else ("forward",)
    return all(find_plan(direction, cell, dtype, batch, hidden, device) for direction in directions)


def takes_several(cell: str, x: Tensor, hidden: int, many: int, *, is_stack: bool) -> bool:
    """Return whether layers of one shape, in parallel or stacked, can read at the same time and that is faster."""
    if x.shape[1] < (FEWEST_STACKED if is_stack else FEWEST_BESIDE) or not takes(cell, x, hidden):
        return False
    directions = ("forward", "backward") if torch.is_grad_enabled() else ("forward",)
    shape = (cell, compute_dtype(x), len(x), hidden, x.device)
    machine = find_machine(x.device)
    return any(_most_at_once(machine, direction, *shape, many)[1] > 1 for direction in directions)


def find_machine(device: torch.device) -> Machine | None:
    """Return what launches kernels on a device, or None with a reason in `REASONS`."""
    if device not in _machines and str(device) not in REASONS:
        if device.type != "cuda":
            REASONS[str(device)] = "not a CUDA device"
        elif torch.cuda.get_device_capability(device) != (9, 0):
            REASONS[str(device)] = "not a Hopper GPU (compute capability 9.0)"
        else:
            _machines[device] = Cuda(device)
    return _machines.get(device)


def find_plan(
    direction: str, cell: str, dtype: torch.dtype, batch: int, hidden: int, device: torch.device, copies: int = 1
) -> KernelPlan | None:
    """Return the fastest plan of which so many copies fit, compiled; None where there is none (why: `REASONS`)."""
    machine = find_machine(device)
    key = (direction, cell, dtype, batch, hidden, device, copies)
    if machine is None:
        return None
    if key not in _plans:
        try:
            kind = {"half": dtype is torch.float16, "tf32": dtype is torch.float32}
            plans = offer(direction, cell, batch=batch, hidden=hidden, chip=machine.chip, **kind)
            _plans[key] = next((plan for plan in plans if machine.fits(plan, copies)), None)
        except (NoCudaCompiler, DriverError, OSError) as error:
            _plans[key], REASONS[str(device)] = None, str(error)
            _machines.pop(device, None)
    return _plans[key]


def check() -> None:
    """Raise if a kernel gave up, and disable kernels on that device; does not synchronise with the GPU."""
    for device, machine in list(_machines.items()):
        if machine.told.value:
            del _machines[device]
            REASONS[str(device)] = "a kernel gave up waiting"
            raise KernelGaveUp(
                f"on {device} a recurrent kernel gave up waiting for its other blocks: results are wrong"
            )


def read(cell: str, given: CellInputs, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Read x (B, T, D): y (B, T, H), and the last h and c (B, H); a row's state is frozen from its length on."""
    ((y, h, c),) = read_several(cell, [given], valid)
    assert y is not None
    return y, h, c


def read_several(
    cell: str,
    givens: Sequence[CellInputs],
    valid: Tensor | None,
    *,
    is_stack: bool = False,
    both_directions: bool = False,
) -> list[Results]:
    """Read with layers of the same shape, at the same time where they fit: y, the last h and c of each.

    In a stack each layer reads the outputs of the one before it: only the first has an x, and only the last returns y.
    `both_directions`, for rows that are not ragged: two layers read the same x, the second from its last step on.
    """
    check()
    lengths = None if valid is None else valid.sum(1, dtype=torch.int32)
    x, keeps = givens[0].x, any(given.needs_gradients() for given in givens)
    (batch, steps, width), device = x.shape, x.device
    extent = Extent(cell, steps, batch, width, givens[0].w_hh.shape[1], compute_dtype(x))
    shape = (find_machine(device), extent, device, len(givens), is_stack)
    ahead, back = find_way("forward", *shape), find_way("backward", *shape) if keeps else None
    setting = Setting(extent, ahead, back, is_stack, both_directions)
    return wavefront.read(setting, lengths, givens)


@lru_cache(maxsize=1024)
def find_way(
    direction: str, machine: Machine | None, extent: Extent, device: torch.device, many: int, is_stack: bool
) -> Placement:
    """Place as many concurrent loops as fit, each with its whole batch; cut time where something can run beside."""
    shape = (direction, extent.cell, extent.dtype, extent.batch, extent.units, device)
    machine, (plan, at_once) = _ready(*shape)[1], _most_at_once(machine, *shape, many)
    if is_stack and at_once > 1:
        return Placement(machine, plan, at_once, chunks.cut_evenly(extent.steps, chunks.MOST))
    return Placement(machine, plan, at_once, chunks.cut_for_products(plan, extent, many, at_once, machine.chip))


@lru_cache(maxsize=1024)
def _most_at_once(
    machine: Machine | None,
    direction: str,
    cell: str,
    dtype: torch.dtype,
    batch: int,
    hidden: int,
    device: torch.device,
    many: int,
) -> tuple[KernelPlan, int]:
    """Return a plan for each of `many` loops, and how many of them fit at once, each with its whole batch."""
    shape = (cell, dtype, batch, hidden, device)
    for copies in range(min(many, AT_ONCE[direction]), 1, -1):
        plan = find_plan(direction, *shape, copies)
        if plan is not None and plan.batch >= batch:
            return plan, copies
    return _ready(direction, *shape)[0], 1


def _ready(
    direction: str, cell: str, dtype: torch.dtype, batch: int, hidden: int, device: torch.device
) -> tuple[KernelPlan, Machine]:
    plan, machine = find_plan(direction, cell, dtype, batch, hidden, device), find_machine(device)
    if plan is None or machine is None:
        raise RuntimeError(f"no recurrent kernel for {batch} x {hidden} on {device}: ask `takes` first")
    return plan, machine
