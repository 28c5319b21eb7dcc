"""The inputs of a recurrent kernel: the tensors of a call, and whether a kernel may be used at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from recollect.layers.recurrent.recurrence import AnyRecurrence, Hidden
from recollect.layers.recurrent.torch_bridge import written_kind


class CellInputs(NamedTuple):
    """The input, the initial states and the weights of a call, in torch's layout."""

    x: Tensor  # (B, T, D)
    h: Tensor | None  # (B, H); None: zeros, where a kernel writes them itself
    c: Tensor | None  # an LSTM's
    w_ih: Tensor  # (G·H, D)
    w_hh: Tensor  # (G·H, H)
    b_ih: Tensor | None
    b_hh: Tensor | None

    @classmethod
    def of(cls, layer: AnyRecurrence, x: Tensor, memory: Hidden | None) -> CellInputs:
        """Return what a layer reads x with."""
        weights: Any = layer._parameters.values()  # in this order; access by name takes longer
        hidden = None if memory is None else memory.hidden
        return cls(x, hidden, getattr(memory, "cell", None), *weights)

    def tensors(self) -> list[Tensor]:
        """Return those that are not None."""
        return [t for t in self if t is not None]

    def needs_gradients(self) -> bool:
        """Return whether gradients are needed."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors())


def is_as_written(layer: AnyRecurrence) -> bool:
    """Return whether a layer has the equations of one of ours: a subclass may have others, or its own fast form."""
    return written_kind(layer) is not None


def is_traced() -> bool:
    """Return whether anything but autograd records the operations: our kernels are unknown to it."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    )
