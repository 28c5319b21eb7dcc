"""A recurrence's weights in one piece of a GPU's memory: cuDNN would copy them together at every call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.backends import cudnn
from torch.backends.cudnn import rnn

if TYPE_CHECKING:
    from recollect.layers.recurrent.recurrence import Recurrence


def lay_together(layer: Recurrence[Any]) -> None:
    """Move the weights of a layer on a GPU into one piece, in cuDNN's order; as parameters they stay what they were."""
    weights = layer._weights()
    if not weights[0].is_cuda or layer.kernel is None or not layer.has_own_weights or not _are_apart(weights):
        return
    if cudnn.is_acceptable(weights[0]):
        with torch.cuda.device_of(weights[0]), torch.no_grad():
            sizes = weights[0].shape[1], rnn.get_cudnn_mode(layer.kernel.upper()), layer.hidden
            torch._cudnn_rnn_flatten_weight(weights, len(weights), *sizes, 0, 1, True, False)


def _are_apart(weights: list[torch.Tensor]) -> bool:
    """Whether all are plain parameters of one kind, each in memory of its own.

    What lies together already stays where it is: a captured graph may know its address.
    """
    first, storages = weights[0], {w.untyped_storage().data_ptr() for w in weights}
    is_alike = all(type(w) is nn.Parameter and (w.dtype, w.device) == (first.dtype, first.device) for w in weights)
    return is_alike and len(storages) == len(weights)
