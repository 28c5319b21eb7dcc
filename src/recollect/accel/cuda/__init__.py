"""Fast forms in CUDA C++ and Triton, registered with `core/dispatch`, which alone imports this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from recollect.accel.cuda import decode_loop as decode_loop, head_step, launcher, single_step
from recollect.accel.cuda.recurrent import forms, persistent
from recollect.accel.cuda.ttt import fused_read
from recollect.core.dispatch import register
from recollect.core.memory import Memory
from recollect.core.types import AnyLayer
from recollect.layers.recurrent.recurrence import Recurrence


def read_layer(layer: Any, x: Tensor, memory: Any, valid: Tensor | None) -> tuple[Tensor, Any] | None:
    """Read with one layer; None where there is no kernel for it."""
    if isinstance(layer, Recurrence):
        return forms.read_layer(layer, x, memory, valid)
    if layer.kernel == "ttt-linear":
        return fused_read.read_layer(layer, x, memory, valid)
    if layer.kernel == "block":
        return single_step.read_block(layer, x, memory, valid)
    return head_step.read_linear(layer, x) if layer.kernel == "linear" else None


def read_neighbours(
    layers: Sequence[AnyLayer], x: Tensor, memories: Sequence[Any], valid: Tensor | None
) -> tuple[Tensor, list[Memory]] | None:
    """Read with the first of some layers, as many as one launch can serve; None where there is no kernel."""
    if isinstance(layers[0], Recurrence):
        return forms.read_stacked(layers, x, memories, valid)
    if layers[0].kernel == "block":
        return single_step.read_blocks(layers, x, memories, valid)
    return head_step.read_head(layers, x) if layers[0].kernel == "norm" else None


def reasons() -> list[str]:
    """Return why kernels are not used, as far as they were requested."""
    met = {"recurrent layers": persistent.REASONS, "single steps": launcher.REASONS, "ttt": fused_read.REASONS}
    return [f"{what}, {name}: {why}" for what, found in met.items() for name, why in found.items()]


def register_forms(device: str = "cuda") -> None:
    """Register all forms for a type of device: tests use an emulator of the GPU on CPU tensors."""
    register("layer", device, read_layer)
    register("neighbours", device, read_neighbours)
    register("both_directions", device, forms.read_both_directions)
    register("reasons", device, reasons)


register_forms()
