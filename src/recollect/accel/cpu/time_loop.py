"""The time loop of recurrences.c: compiled, called with tensors, and divided among threads."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.team import divide, source

KINDS = ("rnn_tanh", "rnn_relu", "gru", "lstm")  # as recurrences.c counts them
DTYPES = {torch.float32: "FLOAT32", torch.float64: "FLOAT64", torch.bfloat16: "BFLOAT16"}
LAY_OUT, WALK = 0, 1  # the work that `share` of recurrences.c divides
REASONS: dict[str, str] = {}  # by dtype: why recurrences on a CPU are read without the kernel

NUMBERS = ("kind", "rows", "steps", "hidden", "is_kept", "is_backward", "threads")
TENSORS = (
    *("order", "lengths", "weight", "panels", "bias", "gates", "outputs", "inner", "first", "first_cell", "last"),
    *("last_cell", "d_outputs", "d_last", "d_last_cell", "d_gates", "d_inner", "d_first", "d_first_cell", "scratch"),
)


class _LoopCall(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in NUMBERS] + [(n, ctypes.c_void_p) for n in TENSORS]


def library_for(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the compiled time loop; None where there is none (why: `REASONS`)."""
    if str(dtype) in REASONS:
        return None
    try:
        return compiled(DTYPES[dtype])
    except OSError as error:  # no compiler, or no writable cache
        REASONS[str(dtype)] = str(error)
        return None


@lru_cache
def compiled(*defined: str) -> ctypes.CDLL:
    """Compile with these macros defined: a dtype's, and in a test WITHOUT_PAIRS."""
    library = load(source("vectors.c", "recurrences.c", "team.c", defined=defined))
    library.scratch_bytes.restype = library.panel_bytes.restype = ctypes.c_int64
    return library


def share(library: ctypes.CDLL, call: _LoopCall) -> None:
    """Pack the weights, then run the loop; each thread its rows."""
    threads = torch.get_num_threads()
    divide(library, call, threads, LAY_OUT)
    divide(library, call, min(threads, call.rows), WALK)


# ---- calls -----------------------------------------------------------------------------------------------


@dataclass
class TimeLoop:
    """One batch of rows, their first state, and their gates: W_ih x + b_ih before the forward loop."""

    kind: str
    library: ctypes.CDLL
    lengths: Tensor | None  # (B,) steps of each row; None: all
    gates: Tensor  # (B, T, G·H)
    first: Tensor  # (B, H)
    cell: Tensor | None

    def forwards(self, w_hh: Tensor, b_hh: Tensor | None, is_kept: bool) -> tuple[Tensor | None, ...]:
        """Return all outputs, what is kept beside them, and the last h and c. Kept gates are written in place."""
        y = self.gates.new_empty(*self.gates.shape[:2], self.first.shape[1])
        real = real_dtype(y.dtype)
        found = {"outputs": y, "inner": torch.empty_like(y) if is_kept and self.kind in ("gru", "lstm") else None}
        found |= {"last": torch.empty_like(self.first), "last_cell": _like(self.cell)}
        bias = w_hh.new_zeros(len(w_hh), dtype=real) if b_hh is None else b_hh.to(real).contiguous()
        self._run(w_hh, is_kept, False, bias=bias, **found)
        return tuple(found.values())

    def backwards(
        self, w_hh: Tensor, y: Tensor, inner: Tensor | None, dy: Tensor, dh: Tensor, dc: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of W_ih x + b_ih, of a GRU's W_hh̃ h + b_hh̃, and of the first h and c."""
        given = {"outputs": y, "inner": inner, "d_outputs": dy.contiguous(), "d_last": dh.contiguous()}
        given["d_last_cell"] = None if dc is None else dc.contiguous()
        found = {"d_gates": _like(self.gates), "d_inner": _like(y) if self.kind == "gru" else None}
        found |= {"d_first": _like(self.first), "d_first_cell": _like(self.cell)}
        self._run(w_hh, True, True, **given, **found)
        return tuple(found.values())

    def _run(self, w_hh: Tensor, is_kept: bool, is_backward: bool, **tensors: Tensor | None) -> None:
        rows, steps, _ = self.gates.shape
        call = _LoopCall(KINDS.index(self.kind), rows, steps, self.first.shape[1], is_kept, is_backward)
        lengths = torch.full((rows,), steps) if self.lengths is None else self.lengths
        order = torch.arange(rows) if self.lengths is None else lengths.argsort(descending=True)
        tensors |= {"order": order, "lengths": lengths, "gates": self.gates, "weight": w_hh.contiguous()}
        tensors |= {"first": self.first, "first_cell": self.cell}
        scratch = self.library.scratch_bytes(ctypes.byref(call)) * min(torch.get_num_threads(), rows)
        tensors["scratch"] = torch.empty(scratch, dtype=torch.uint8)
        tensors["panels"] = torch.empty(self.library.panel_bytes(ctypes.byref(call)), dtype=torch.uint8)
        for name, tensor in tensors.items():
            setattr(call, name, None if tensor is None else tensor.data_ptr())
        share(self.library, call)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which the loop computes."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _like(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.empty_like(tensor)
