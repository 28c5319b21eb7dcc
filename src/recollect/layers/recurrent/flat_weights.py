"""The weights of a recurrence in one contiguous buffer on a GPU: otherwise cuDNN copies them into one at every call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.backends import cudnn
from torch.backends.cudnn import rnn

if TYPE_CHECKING:
    from recollect.layers.recurrent.recurrence import AnyRecurrence


def lay_together(layer: AnyRecurrence) -> None:
    """Move the weights of a layer on a GPU into one contiguous buffer, in cuDNN's order, in place."""
    weights = layer._weights()
    if not weights[0].is_cuda or layer.kernel is None or not layer.has_own_weights or not _are_apart(weights):
        return
    if cudnn.is_acceptable(weights[0]):
        with torch.cuda.device_of(weights[0]), torch.no_grad():
            sizes = weights[0].shape[1], rnn.get_cudnn_mode(layer.kernel.upper()), layer.hidden
            torch._cudnn_rnn_flatten_weight(weights, len(weights), *sizes, 0, 1, True, False)


def _are_apart(weights: list[torch.Tensor]) -> bool:
    """Return whether all are plain parameters of one dtype and device, each in a storage of its own.

    Weights that share a buffer already are not moved: a captured graph may hold their address.
    """
    first = weights[0]
    storages = {w.untyped_storage().data_ptr() for w in weights}
    is_alike = all(type(w) is nn.Parameter and (w.dtype, w.device) == (first.dtype, first.device) for w in weights)
    return is_alike and len(storages) == len(weights)
