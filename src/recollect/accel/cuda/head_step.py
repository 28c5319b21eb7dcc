"""The output projection for a single step on a GPU, with the norm before it: see cuda/head_step.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recollect.accel.cuda import single_step
from recollect.accel.cuda.launcher import Kernel, address, launcher_for
from recollect.core.memory import Memory, Nothing
from recollect.core.record import is_watched
from recollect.layers.pointwise import LayerNorm, Linear, RMSNorm


class _HeadArguments(ctypes.Structure):
    """`Arguments` of head_step.cu, field by field."""

    names = "norm", "norm_bias", "weight", "bias", "input", "output"
    _fields_ = tuple((name, ctypes.c_void_p) for name in names)


@dataclass(frozen=True)
class HeadSizes:
    """The constants of head_step.cu."""

    scalar: int
    rows: int
    width: int
    width_out: int
    norms: int
    rms: int
    eps: str
    warps: int
    blocks: int

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return 4 * self.rows * (-(-self.width // 256) * 256 + self.width + 2 * self.warps)

    @property
    def kernel(self) -> Kernel:
        """Return the kernel."""
        constants = tuple((name.upper(), value) for name, value in asdict(self).items())
        return Kernel("head_step", constants, self.blocks, 32 * self.warps, self.shared)


def read_linear(layer: Linear, x: Tensor) -> tuple[Tensor, Nothing] | None:
    """Read one step with a linear map alone."""
    y = step_head(None, layer.linear, x) if type(layer) is Linear else None
    return None if y is None else (y, Nothing())


def read_head(layers: Sequence[Any], x: Tensor) -> tuple[Tensor, list[Memory]] | None:
    """Read one step with a norm and the linear map after it in one launch."""
    is_head = [type(layer) for layer in layers[:2]] in ([LayerNorm, Linear], [RMSNorm, Linear])
    if not is_head or is_watched(*layers[:2]):
        return None
    y = step_head(layers[0].norm, layers[1].linear, x)
    return None if y is None else (y, [Nothing(), Nothing()])


def step_head(norm: nn.Module | None, linear: nn.Module, x: Tensor) -> Tensor | None:
    """Map one step x (B, 1, D) by W norm(x) + b, to (B, 1, V); None where there is no kernel for it."""
    launcher = launcher_for(x)
    if launcher is None or not single_step.is_single(x) or not _is_covered(norm, linear, x):
        return None
    sizes = _sizes_of(norm, linear, x, launcher.blocks(x.device))
    if sizes.shared > single_step.SHARED:
        return None
    y, x = x.new_empty(len(x), 1, sizes.width_out), x.contiguous()
    tensors: Any = getattr(norm, "weight", None), getattr(norm, "bias", None), linear.weight, linear.bias, x, y
    launcher.launch(sizes.kernel, x.device, _HeadArguments(*map(address, tensors)))
    return y


def _is_covered(norm: nn.Module | None, linear: nn.Module, x: Tensor) -> bool:
    """Return whether these are torch's own modules, of widths that are multiples of eight, without hooks."""
    if type(linear) is not nn.Linear or type(norm) not in (type(None), nn.LayerNorm, nn.RMSNorm):
        return False
    is_plain = linear.weight.dtype == x.dtype and linear.weight.is_contiguous() and linear.in_features % 8 == 0
    watched = is_watched(*(m for m in (norm, linear) if m is not None))
    return is_plain and not watched and (norm is None or norm.weight is not None)


def _sizes_of(norm: Any, linear: Any, x: Tensor, blocks: int) -> HeadSizes:
    return HeadSizes(
        scalar=single_step.SCALARS[x.dtype],
        rows=len(x),
        width=linear.in_features,
        width_out=linear.out_features,
        norms=int(norm is not None),
        rms=int(isinstance(norm, torch.nn.RMSNorm)),
        eps=f"{getattr(norm, 'eps', None) or 1e-5!r}f",
        warps=single_step.WARPS,
        blocks=blocks,
    )
