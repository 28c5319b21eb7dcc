"""Attention over several layers: rollout, and the alignment of a target with its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.inspection.layer_arrays import LayerRead
from recollect.inspection.trace import Array
from recollect.layers.attention.self_attention import Attention


def rollout(weights: Sequence[Array]) -> Array:
    """Return the attention rollout (T, T) of the weights (N, T, T) of each layer, the lowest first.

    R_0 = I;  R_l = ½ (mean over heads of A_l + I) R_{l−1}   (Abnar & Zuidema 2020, section 3, with residual weight ½)

    Rows of a step that may attend to nothing keep only the residual connection.
    """
    flow = np.eye(weights[0].shape[1])
    for heads in weights:
        mean = heads.mean(0)
        mixed = mean + np.eye(len(mean))
        flow = (mixed / mixed.sum(1, keepdims=True)) @ flow
    return flow


def rollout_of(layers: Sequence[LayerRead], arrays: dict[str, Array]) -> Array | None:
    """Return the rollout of a model's self-attention; None where it has none, or reads a source."""
    names = [f"{one.name}.weights" for one in layers if isinstance(one.module, Attention) and one.name[0] != "e"]
    found = [arrays[name] for name in names if name in arrays]
    return rollout(found) if found and all(one.shape[1] == one.shape[2] for one in found) else None


def alignment_of(layers: Sequence[LayerRead], arrays: dict[str, Array]) -> Array | None:
    """Return the weights (T, S) of the target's steps over the source, the mean of all heads and layers."""
    names = [f"{one.name}.weights" for one in layers if one.attends_to_source]
    heads = [arrays[name] for name in names if name in arrays]
    return np.concatenate(heads).mean(0) if heads else None
