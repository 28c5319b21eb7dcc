"""What a recorded step of a model depends on beside the values of tensors, and what tells two tensors apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recollect.core.record import is_watched

FEWEST = 16  # steps from which on a recording or a capture is faster
PLAIN = (int, float, str, tuple, type(None))
NEVER_PLAIN = {name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set))}  # torch's own


class Unrepeatable(Exception):
    """A step that depends on values, as no recording can."""


class Unsettled(Unrepeatable):
    """A step after which the memory has another shape: later ones may keep it."""


class ModelSurvey:
    """A model's parameters, settings and hooks; a recording is valid while `print` stays the same."""

    def __init__(self, model: nn.Module, modules: Sequence[nn.Module]) -> None:
        self.model = model
        self.tensors = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
        settings = [
            [(k, v) for k, v in vars(m).items() if k not in NEVER_PLAIN and isinstance(v, PLAIN)] for m in modules
        ]
        self.print = [(id(t), t.data_ptr()) for t in self.tensors], settings
        self.has_hooks = is_watched(*modules)


def storage_of(t: Tensor) -> int:
    """Return the identity of a tensor's storage: tensors with the same one share memory."""
    return t.untyped_storage()._cdata


def is_same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are the same elements of one storage, with the same strides."""
    return a is b or (
        storage_of(a) == storage_of(b) and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    )


def keeps_shapes(leaves: Sequence[Tensor], after: Sequence[Tensor], same_structure: bool) -> None:
    """Raise `Unsettled` where a step returned a memory of another structure or shape."""
    if not same_structure or any(a.shape != b.shape for a, b in zip(after, leaves, strict=True)):
        raise Unsettled("the memory does not keep its shape")


def allclose(a: Tensor, b: Tensor) -> bool:
    """Return whether two results of one step agree up to rounding."""
    return torch.allclose(a.double(), b.double(), 1e-3, 1e-4, equal_nan=True)
