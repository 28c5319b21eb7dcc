"""How tokens reach each other over several layers: rollout, alignment with a source, and the token distance."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from recollect.inspection.layer_arrays import LayerRead
from recollect.inspection.trace import Array
from recollect.layers.attention.self_attention import Attention
from recollect.layers.recurrent.recurrence import Recurrence

SIDES = re.compile(r"\b(forwards|backwards)\b")


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


def token_distance(layers: Sequence[LayerRead], arrays: dict[str, Array]) -> Array | None:
    """Return the fewest sequential operations from input s to the output of step t, (T, T); ∞ where none leads there.

    A recurrent layer needs one for every step from s to t, attention a single one to whatever it may attend to. Those
    of a layer's two directions are side by side. None where another kind of layer carries something between steps.
    """
    if not layers or any(one.name[0] == "e" for one in layers):
        return None
    stages: dict[str, Array] = {}
    for layer in layers:
        cost = _operations(layer, arrays)
        if cost is None:
            return None
        stage = SIDES.sub("both", layer.path) + f" {layer.call}"
        stages[stage] = np.minimum(stages[stage], cost) if stage in stages else cost
    first, *others = stages.values()
    if any(cost.shape != (len(first), len(first)) for cost in stages.values()):
        return None  # the end of a longer text: what lies before is not shown
    found = first
    for cost in others:
        found = np.stack([(row[:, None] + found).min(0) for row in cost])
    return found


def _operations(layer: LayerRead, arrays: dict[str, Array]) -> Array | None:
    """Return the operations (T, T) of one layer from each step to each step."""
    if isinstance(layer.module, Attention) and f"{layer.name}.weights" in arrays:
        return np.where((arrays[f"{layer.name}.weights"] > 0).any(0), 1.0, np.inf)
    if not isinstance(layer.module, Recurrence):
        return None
    places = np.arange(len(layer.values["hidden"]))
    steps = places[:, None] - places if not layer.is_backward else places - places[:, None]
    return np.where(steps >= 0, steps + 1.0, np.inf)
