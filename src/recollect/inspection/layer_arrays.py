"""From the values that `record` collects, by module, to a trace's arrays, by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Repeated
from recollect.core.record import Recording
from recollect.core.types import JsonObject
from recollect.inspection.subject import as_array
from recollect.inspection.trace import Array
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.multi_head import MultiHead
from recollect.layers.attention.self_attention import Attention
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.window import Window
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.layers.ttt.layer import TTT
from recollect.models.encoders import RecurrentEncoder

STATES = ("hidden", "cell", "input_gate", "forget_gate", "output_gate", "reset_gate", "update_gate", "candidate")
INNER = {"loss_before": "inner_loss", "loss_after": "inner_loss_after", "rate": "inner_rate", "movement": "movement"}
GATES = {1: ("hidden",), 3: ("reset", "update", "candidate"), 4: ("input", "forget", "candidate", "output")}
KINDS = (Recurrence, Attention, CrossAttention, LinearAttention, TTT, Attend, MultiHead, Window, Markov)


@dataclass(frozen=True)
class LayerRead:
    """One remembering layer and what it recorded: its name in the trace, its module, its values by our names."""

    name: str
    path: str
    module: nn.Module
    is_backward: bool
    values: dict[str, Tensor]  # without the batch
    call: int | None = None  # of a layer that is called several times, which

    @property
    def attends_to_source(self) -> bool:
        """Whether its weights are to a source."""
        return isinstance(self.module, CrossAttention | Attend | MultiHead)

    def cut(self, steps: slice) -> LayerRead:
        """Return the same layer with some of its steps."""
        found = {}
        for name, value in self.values.items():
            found[name] = value[:, steps, steps] if name in ("weights", "scores") else value[steps]
        return replace(self, values=found)

    def facts(self) -> JsonObject:
        """Return what is known of the layer, as plain data."""
        module: Any = self.module
        found: JsonObject = {"name": self.name, "kind": type(module).__name__, "path": self.path}
        found["direction"] = "backward" if self.is_backward else "forward"
        found["growth"] = getattr(module, "growth", "none")
        if isinstance(module, Recurrence):
            found |= {"units": module.hidden, "gates": list(GATES[module.gates])}
        if isinstance(module, GRU):
            found["reset"] = module.reset
        heads = getattr(module, "heads", None)
        if heads is not None:
            found["heads"] = heads if isinstance(heads, int) else len(heads)
        if isinstance(module, Attention):
            found |= {"window": module.window, "scaled": module.scale != 1.0, "causal": module.causal}
            found["positions"] = getattr(module, "positions", None)
        if isinstance(module, LinearAttention):
            found["decay"] = bool((module.slopes != 0).any())
        if isinstance(module, CrossAttention):
            found["scaled"] = module.scale != 1.0
        if isinstance(module, Window | Markov):
            found["order"] = module.order
        if self.attends_to_source:
            found["attends_to"] = "source"
        return found


def layers_read(model: nn.Module, seen: Recording, *, has_source: bool) -> list[LayerRead]:
    """Return the layers that recorded something, in the order of the modules, with names by their number.

    Pools are no layers: their weights are `pool.weights`.
    """
    found: list[LayerRead] = []
    counts = {"": 0, "encoder.": 0}
    for path, module in model.named_modules():
        if not isinstance(module, KINDS) or (isinstance(module, Attend) and ".heads." in path):
            continue
        side = "encoder." if has_source and path.startswith("encoder.") else ""
        above = list(_ancestors(model, path))
        is_repeated = any(isinstance(one, Repeated) for one, _ in above)
        is_backward = sum(_turns(one, child) for one, child in above) % 2 == 1
        for call, values in _calls(module, path, seen, is_repeated=is_repeated):
            name = f"{side}layers.{counts[side]}"
            counts[side] += 1
            ordered = {key: _in_order(key, value, is_backward) for key, value in values.items()}
            found.append(LayerRead(name, path, module, is_backward, ordered, call))
    return found


def _calls(
    module: nn.Module, path: str, seen: Recording, *, is_repeated: bool
) -> Iterator[tuple[int | None, dict[str, Tensor]]]:
    """Return the values of each layer: a `Repeated` one calls its module once for each of its layers."""
    renamed = INNER if isinstance(module, TTT) else {"known": "context_length"} if isinstance(module, Markov) else {}
    prefix = f"{path}." if path else ""
    own = (*STATES, "weights", "scores", *renamed)
    names = [name for name in own if f"{prefix}{name}" in seen.calls]
    if not names:
        return
    ours = {name: renamed.get(name, name) for name in names}
    if is_repeated:
        for call in range(len(seen.calls[f"{prefix}{names[0]}"])):
            yield call, {ours[name]: seen.calls[f"{prefix}{name}"][call][0] for name in names}
    else:
        yield None, {ours[name]: seen[f"{prefix}{name}"][0] for name in names}


def _ancestors(model: nn.Module, path: str) -> Iterator[tuple[Any, str]]:
    """Return the modules above a path, each with the name of its child on that path."""
    module = model
    for name in path.split(".") if path else ():
        yield module, name
        module = getattr(module, name)


def _turns(module: Any, child: str) -> bool:
    """Return whether a module gives its child the sequence from its end."""
    if isinstance(module, Bidirectional):
        return child == "backwards"
    return isinstance(module, RecurrentEncoder) and module.backwards and child == "cells"


def _in_order(name: str, value: Tensor, is_backward: bool) -> Tensor:
    """Return a value in the order of the tokens: (T, …), or of attention (N, T, S)."""
    if name in ("weights", "scores"):
        value = value if value.dim() == 3 else value[None]
        return value.flip(1, 2) if is_backward else value
    return value.flip(0) if is_backward else value


def arrays_of(layer: LayerRead) -> dict[str, Array]:
    """Return a layer's arrays under their names in a trace; scores that were not allowed are −∞."""
    found = {}
    for name, value in layer.values.items():
        array = value.cpu().numpy() if name == "context_length" else as_array(value)
        found[f"{layer.name}.{name}"] = array
    weights, scores = found.get(f"{layer.name}.weights"), found.get(f"{layer.name}.scores")
    if weights is not None:
        if scores is not None:
            found[f"{layer.name}.scores"] = np.where(weights > 0, scores, -np.inf)
        found[f"{layer.name}.entropy"] = -(weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
        if not layer.attends_to_source:
            found[f"{layer.name}.mean_distance"] = (weights * steps_between(*weights.shape[1:])).sum(-1)
    return found


def steps_between(count: int, attended: int) -> Array:
    """Return |t − s| of the last `count` of all steps and each step, (T, S)."""
    places = np.arange(attended)
    return np.abs(places[attended - count :, None] - places).astype(np.float64)
