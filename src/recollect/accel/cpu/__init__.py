"""Fast forms in C for the CPU, registered with `core/dispatch`, which alone imports this."""

from __future__ import annotations

from typing import Any

from recollect.accel.cpu import attention, compiler, decode as decode, linear_maps, recurrence, time_loop
from recollect.accel.cpu.decode import compilation
from recollect.core.dispatch import register
from recollect.core.types import AnyLayer
from recollect.layers.recurrent.recurrence import Recurrence


def read_layer(layer: AnyLayer, *given: Any) -> Any:
    """Read with one layer: recurrences have a kernel here, and a single step of self-attention."""
    if isinstance(layer, Recurrence):
        return recurrence.read_layer(layer, *given)
    return attention.read_layer(layer, *given) if layer.kernel == "self-attention" else None


def reasons() -> list[str]:
    """Return why kernels are not used, as far as they were requested."""
    met = {
        "recurrent layers": time_loop.REASONS,
        "self-attention": attention.REASONS,
        "decode steps": compilation.REASONS,
    }
    return [f"{what}, {name}: {why}" for what, found in met.items() for name, why in found.items()]


register("layer", "cpu", read_layer)
register("linear_maps", "cpu", linear_maps.linear_maps)
register("compiler", "cpu", compiler.examine)
register("reasons", "cpu", reasons)
