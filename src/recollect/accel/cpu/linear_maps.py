"""Linear maps of many rows by oneDNN, where torch's other library for matrix products is slower.

torch multiplies float32 matrices with MKL, which leaves AVX-512 unused on processors that are not Intel's. oneDNN,
which torch brings along, uses it: on an AMD EPYC and one thread 64 rows of 353 inputs and 1412 outputs take 0.31 ms
instead of 0.63, 4 rows the same in both. The results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recollect.accel.cell_inputs import is_traced

FEWEST = 8  # rows: with fewer MKL is as fast
PLAIN = (Tensor, nn.Parameter)


class ByOneDNN(TorchFunctionMode):
    """While it is entered, `linear` is computed by oneDNN where that is faster; everything else as always."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute one of torch's functions."""
        if func is F.linear and not kwargs and _fits(*args):
            x, weight, bias = (*args, None)[:3]
            return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return func(*args, **(kwargs or {}))


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    given = [x, weight] if bias is None else [x, weight, bias]
    are_plain = all(type(t) in PLAIN and t.dtype == torch.float32 and t.device.type == "cpu" for t in given)
    is_large = are_plain and weight.dim() == 2 and x.numel() >= FEWEST * weight.shape[1] > 0 and weight.shape[0] > 0
    return is_large and not torch.is_grad_enabled() and not is_traced() and not torch.is_autocast_enabled("cpu")


def linear_maps() -> ByOneDNN | None:
    """Return the context in which linear maps are faster; None: there is none on this machine."""
    return ByOneDNN() if is_faster() else None


@lru_cache
def is_faster() -> bool:
    """Return whether this processor has AVX-512, is not Intel's, and torch has both libraries."""
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    if not has_both or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    try:
        maker = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "GenuineIntel" not in maker and hasattr(torch.ops.mkldnn, "_linear_pointwise")
