"""The inputs of a time loop: one launch of `cuda/prepare.cu` lays them out, from tensors as torch has them.

Nothing is cached between calls: weights change without notice, and fused optimisers do not even bump `_version`.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda.recurrent.execution import Machine
from recollect.accel.cuda.recurrent.launches import launches_of, sizes
from recollect.accel.cuda.recurrent.plan import Chore, KernelPlan
from recollect.accel.cuda.recurrent.workspace import (
    Extent,
    Layout,
    Workspace,
    backward_parts,
    forward_parts,
    kept_parts,
    lay_out,
)

POINTERS = ("by_time", "slotted", "packed", "bias", "first_h", "first_c", "zeros")  # named as the parts of workspaces


class TensorPointer(ctypes.Structure):
    """`Source` of prepare.cu, field by field."""

    _fields_ = (("data", ctypes.c_void_p), ("is_float", ctypes.c_uint64))


class PrepareArguments(ctypes.Structure):
    """`Prepare` of prepare.cu; its first words are set in one assignment, which is faster than field by field."""

    _fields_ = (
        ("sources", ctypes.c_uint64 * (2 * len(CellInputs._fields))),  # in the order of `CellInputs`
        ("pointers", ctypes.c_uint64 * len(POINTERS)),
        *((name, ctypes.c_uint64) for name in ("step_stride", "row_stride", "zero_count")),
        *((name, ctypes.c_int) for name in ("steps", "batch", "width", "units")),
        *((name, ctypes.c_int) for name in ("parts", "wide", "deep", "depth", "high", "laid", "cluster", "span")),
    )


class Form(NamedTuple):
    """All of a preparation that depends on sizes alone."""

    chore: Chore
    things: int  # divided among threads
    arguments: PrepareArguments  # to be copied
    workspace: Layout
    kept: Layout | None = None  # None: all lies in one workspace


def prepare_forward(
    machine: Machine, plan: KernelPlan, given: CellInputs, extent: Extent, chunks: int = 1, *, keeps: bool = False
) -> tuple[Workspace, Workspace]:
    """Lay out what forward reads, in a workspace for as long as it runs, and in one that is kept.

    Where nothing is kept for backward, both are the same.
    """
    form = _forward_form(plan, extent, chunks, given.b_ih is not None, keeps)
    given = given if extent.has_x else given._replace(x=None)  # type: ignore[arg-type]
    sources = [None if t is None else _readable(t, extent.dtype) for t in given]
    workspace = Workspace.make(given.w_hh, extent.dtype, form.workspace)
    kept = workspace if form.kept is None else Workspace.make(given.w_hh, extent.dtype, form.kept)
    _launch(machine, form, sources, workspace.addresses if kept is workspace else workspace.addresses | kept.addresses)
    return workspace, kept


def prepare_backward(
    machine: Machine, plan: KernelPlan, w_hh: Tensor, extent: Extent, wanted: Any, chunks: int = 1
) -> Workspace:
    """Lay out what backward reads, in a workspace that also holds all its results.

    `wanted` has, in the order of `CellInputs`, the dtypes of the gradients that are needed.
    """
    form = _backward_form(plan, extent, chunks, wanted.w_ih is not None, wanted.w_hh is not None)
    workspace = Workspace.make(w_hh, extent.dtype, form.workspace)
    sources = [_readable(w_hh, extent.dtype) if name == "w_hh" else None for name in CellInputs._fields]
    _launch(machine, form, sources, workspace.addresses)
    return workspace


def _launch(machine: Machine, form: Form, sources: list[Tensor | None], addresses: dict[str, int]) -> None:
    arguments = PrepareArguments.from_buffer_copy(form.arguments)
    pairs = [(0, False) if t is None else (t.data_ptr(), t.dtype is torch.float32) for t in sources]
    arguments.sources[:] = [word for pair in pairs for word in pair]
    arguments.pointers[:] = [addresses.get(name, 0) for name in POINTERS]
    if sources[0] is not None:
        arguments.row_stride, arguments.step_stride, _ = sources[0].stride()
    machine.do(form.chore, form.things, arguments)


@lru_cache(maxsize=1024)
def _forward_form(plan: KernelPlan, extent: Extent, chunks: int, has_bias: bool, keeps: bool) -> Form:
    size, launches = sizes(plan), chunks * launches_of(plan, extent.batch)
    steps = extent.steps if extent.has_x else 0
    arguments = PrepareArguments(
        zero_count=launches * size.space // 16,
        steps=steps,
        batch=extent.batch,
        width=extent.width,
        units=extent.units,
        **size.packing,
    )
    eights = extent.width * max(steps * extent.batch, extent.columns) // 8
    workspace = forward_parts(extent, launches * size.space, 16 * size.parts, chunks, has_bias=has_bias)
    kept = kept_parts(extent, keeps=keeps)
    layouts = (lay_out(workspace), lay_out(kept)) if keeps else (lay_out(workspace | kept),)
    return Form(size.chores["prepare"], max(size.parts, eights), arguments, *layouts)


@lru_cache(maxsize=1024)
def _backward_form(plan: KernelPlan, extent: Extent, chunks: int, wants_ih: bool, wants_hh: bool) -> Form:
    size, launches = sizes(plan), chunks * launches_of(plan, extent.batch)
    arguments = PrepareArguments(zero_count=launches * size.space // 16, units=extent.units, **size.packing)
    wants = {"wants_ih": wants_ih, "wants_hh": wants_hh}
    workspace = backward_parts(extent, launches * size.space, 16 * size.parts, chunks, **wants)
    return Form(size.chores["prepare"], size.parts, arguments, lay_out(workspace))


def _readable(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in a dtype that the kernel reads; x (B, T, D) may keep its strides along B and T."""
    if t.dtype is not dtype and t.dtype is not torch.float32:
        t = t.float()
    return t if t.dim() == 3 and t.stride(2) == 1 else t.contiguous()
