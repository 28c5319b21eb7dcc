"""The kernel of recurrences.c: how it is called, with what, and on which threads."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.kernels.c_compiler import NoCompiler, load

KINDS = ("RNN tanh", "RNN relu", "GRU", "LSTM")  # as recurrences.c counts them
DTYPES = {torch.float32: "FLOAT32", torch.float64: "FLOAT64", torch.bfloat16: "BFLOAT16"}
REASONS: dict[str, str] = {}  # why recurrences on a CPU are read without the kernel, by dtype

NUMBERS = ("kind", "rows", "steps", "hidden", "is_kept", "is_backward", "threads")
TENSORS = (
    *("order", "lengths", "panels", "bias", "gates", "outputs", "inner", "first", "first_cell", "last", "last_cell"),
    *("d_outputs", "d_last", "d_last_cell", "d_gates", "d_inner", "d_first", "d_first_cell", "scratch"),
)


class _Call(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in NUMBERS] + [(n, ctypes.c_void_p) for n in TENSORS]


def library_for(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Give the compiled kernel; None where there is none, and `REASONS` says why."""
    if str(dtype) in REASONS:
        return None
    try:
        return _compiled(dtype)
    except (NoCompiler, OSError) as error:
        REASONS[str(dtype)] = str(error)
        return None


@lru_cache
def _compiled(dtype: torch.dtype) -> ctypes.CDLL:
    text = files("recollect.kernels").joinpath("recurrences.c").read_text(encoding="utf-8")
    library = load(f"#define {DTYPES[dtype]}\n{text}")
    library.scratch_bytes.restype = ctypes.c_int64
    return library


@lru_cache
def torch_threads() -> tuple[ctypes.c_void_p, ...] | None:
    """Give the functions by which torch's own OpenMP begins and counts; None where it is not to be found."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/lib" in line}
    found = sorted((p for p in paths if Path(p).name.startswith(("libgomp", "libiomp5", "libomp"))), key=_distance)
    if not found:
        return None
    openmp = ctypes.CDLL(found[0])
    return tuple(
        ctypes.cast(getattr(openmp, name), ctypes.c_void_p)
        for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    )


def _distance(path: str) -> tuple[bool, str]:
    return not Path(path).is_relative_to(Path(torch.__file__).parent), path


class Walk:
    """Calls of the kernel for one set of rows: once forwards, once backwards."""

    def __init__(self, kind: str, lengths: Tensor, h: Tensor, c: Tensor | None, gates: Tensor) -> None:
        library = library_for(gates.dtype)
        assert library is not None
        self.library, self.dtype, self.gates = library, gates.dtype, gates
        self.kind, self.lengths = kind, lengths
        self.order = lengths.argsort(descending=True, stable=True)
        self.first, self.cell = h.contiguous(), None if c is None else c.contiguous()
        self.real = torch.float32 if gates.dtype == torch.bfloat16 else gates.dtype

    def forwards(self, w_hh: Tensor, b_hh: Tensor | None, is_kept: bool) -> tuple[Tensor | None, ...]:
        """Give all outputs, what is kept beside the gates, and the last h and c. Puts the gates in place."""
        rows, steps, _ = self.gates.shape
        y = self.gates.new_empty(rows, steps, self.first.shape[1])
        inner = torch.empty_like(y) if is_kept and self.kind in ("GRU", "LSTM") else None
        bias = w_hh.new_zeros(len(w_hh), dtype=self.real) if b_hh is None else b_hh.to(self.real).contiguous()
        last, last_cell = torch.empty_like(self.first), None if self.cell is None else torch.empty_like(self.cell)
        self._run(w_hh, is_kept, False, bias=bias, outputs=y, inner=inner, last=last, last_cell=last_cell)
        return y, inner, last, last_cell

    def backwards(
        self, w_hh: Tensor, y: Tensor, inner: Tensor | None, dy: Tensor, dh: Tensor, dc: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Give the gradients of W_ih x + b_ih, of what a GRU adds beside, and of the first h and c."""
        d_gates = torch.empty_like(self.gates)
        given = {"outputs": y, "inner": inner, "d_outputs": dy.contiguous(), "d_last": dh.contiguous()}
        found = {"d_gates": d_gates, "d_inner": torch.empty_like(y) if self.kind == "GRU" else None}
        found["d_first"] = torch.empty_like(self.first)
        found["d_first_cell"] = None if self.cell is None else torch.empty_like(self.cell)
        self._run(w_hh.t(), True, True, **given, **found, d_last_cell=None if dc is None else dc.contiguous())
        return tuple(found.values())

    def _run(self, weight: Tensor, is_kept: bool, is_backward: bool, **tensors: Tensor | None) -> None:
        rows, steps, _ = self.gates.shape
        threads = min(torch.get_num_threads(), rows)
        numbers = (KINDS.index(self.kind), rows, steps, self.first.shape[1], is_kept, is_backward, threads)
        call = _Call(*numbers)
        tensors |= {"order": self.order, "lengths": self.lengths, "gates": self.gates, "panels": self._panels(weight)}
        tensors |= {"first": self.first, "first_cell": self.cell}
        tensors["scratch"] = torch.empty(threads * self.library.scratch_bytes(ctypes.byref(call)), dtype=torch.uint8)
        for name, tensor in tensors.items():
            setattr(call, name, None if tensor is None else tensor.data_ptr())
        self._share(call, threads)

    def _share(self, call: _Call, threads: int) -> None:
        functions = torch_threads()
        if threads == 1 or functions is None:
            for i in range(threads):
                self.library.share(ctypes.byref(call), ctypes.c_int64(i))
        else:
            self.library.share_all(ctypes.byref(call), *functions)

    def _panels(self, weight: Tensor) -> Tensor:
        """Lay W (N, K) out as the kernel reads it: (N / width, K, width), in pairs where two are multiplied at once."""
        width, pair = self.library.panel_width(), self.library.pair()
        weight = weight.to(self.real) if pair == 1 else weight
        outputs, size = weight.shape
        weight = F.pad(weight, (0, -size % pair, 0, -outputs % width))
        return weight.unflatten(1, (-1, pair)).unflatten(0, (-1, width)).permute(0, 2, 1, 3).contiguous()
