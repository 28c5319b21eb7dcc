"""Self-attention of one new step for each row of a batch, on a CPU, by a kernel in C.

torch's fused kernel reads every row up to the longest one's end, and needs a mask for that. In a batch of rows of all
ages that is most of a step's time. Here each row is read to its own end. Only where the owner of the memory allows
writing into it: then the new key and value need no copy of the others.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from recollect.accel.cell_inputs import is_traced
from recollect.accel.cpu.compiler import load
from recollect.accel.cpu.team import divide, source
from recollect.layers.attention.self_attention import KeysValues, SelfAttention

DTYPES = {torch.float32: "FLOAT32", torch.float64: "FLOAT64"}
FEWEST = 1 << 14  # elements of the keys: fewer do not repay compilation
REASONS: dict[str, str] = {}  # by dtype: why there is no kernel

NUMBERS = ("rows", "slots", "kv_heads", "group", "width", "threads")
TENSORS = ("lengths", "q", "key", "new_value", "keys", "values", "out", "weights")


class _AttentionCall(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in NUMBERS),
        *((name, ctypes.c_void_p) for name in TENSORS),
        ("scale", ctypes.c_double),
    ]


def read_layer(layer: Any, x: Tensor, memory: Any, valid: Tensor | None) -> tuple[Tensor, Any] | None:
    """Read one new step of each row; None where the kernel does not apply."""
    if x.shape[1] != 1 or valid is not None or not _is_own(memory) or not _is_plain(layer, x):
        return None
    library = library_for(x.dtype)
    if library is None:
        return None
    q, new = layer.project(x, memory.length)  # (B, 1, N, H)
    context = attend(library, q, new["keys"], new["values"], memory, layer.scale)
    return layer.finish(context), memory._with(length=memory.length + 1)


def _is_own(memory: Any) -> bool:
    """Return whether a memory may be written into, and every row has a free slot."""
    if type(memory) is not KeysValues or not (memory.reserved and memory.in_place) or memory.limit is not None:
        return False
    is_laid_out = memory.keys.is_contiguous() and memory.values.is_contiguous()
    return is_laid_out and memory.keys.numel() >= FEWEST and int(memory.length.max()) < memory.slots


def _is_plain(layer: Any, x: Tensor) -> bool:
    """Return whether a layer has the equations of ours, and nothing but our operations are looked at."""
    is_ours = type(layer) is SelfAttention and layer.alibi is None and x.dtype in DTYPES
    is_free = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and not is_traced()
    return is_ours and is_free and type(x) in (Tensor, nn.Parameter)


def attend(library: ctypes.CDLL, q: Tensor, key: Tensor, value: Tensor, memory: KeysValues, scale: float) -> Tensor:
    """Return the contexts (B, 1, N, H) of queries (B, 1, N, H); writes key and value (B, 1, N, H) into the memory."""
    rows, slots, kv_heads, width = memory.keys.shape
    threads = min(torch.get_num_threads(), rows * kv_heads)
    out = torch.empty(q.shape, dtype=q.dtype)
    tensors = {
        "lengths": memory.length,
        "q": q.contiguous(),
        "key": key.contiguous(),
        "new_value": value.contiguous(),
        "keys": memory.keys,
        "values": memory.values,
        "out": out,
        "weights": torch.empty(threads * (slots + library.lanes()), dtype=q.dtype),
    }
    call = _AttentionCall(rows, slots, kv_heads, q.shape[2] // kv_heads, width, threads, scale=scale)
    for name, tensor in tensors.items():
        setattr(call, name, tensor.data_ptr())
    divide(library, call, threads)
    return out


def library_for(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the compiled kernel; None where there is none (why: `REASONS`)."""
    if str(dtype) in REASONS:
        return None
    try:
        return _compiled(DTYPES[dtype])
    except OSError as error:  # no compiler, or no writable cache
        REASONS[str(dtype)] = str(error)
        return None


@lru_cache
def _compiled(defined: str) -> ctypes.CDLL:
    library = load(source("vectors.c", "attention.c", "team.c", defined=[defined]))
    library.lanes.restype = ctypes.c_int64
    return library
