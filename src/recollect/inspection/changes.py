"""What if: the same model with another forget bias, without 1/√k, with a head knocked out … as a changed copy."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from recollect.core.errors import nearest
from recollect.core.types import JsonObject
from recollect.inspection.layer_arrays import KINDS
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import Attention, BasicSelfAttention
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.layers.ttt.layer import TTT

HELD = 1e4  # a gate's logit at which the sigmoid is exactly 1, and at −1e4 exactly 0
GATES = {  # of each layer: the block of its weights, and whether the gate is held open
    LSTM: {"input_gate": (0, True), "forget_gate": (1, True), "output_gate": (3, True)},
    GRU: {"reset_gate": (0, True), "update_gate": (1, False)},
}


@dataclass(frozen=True)
class Changes:
    """What is changed; None and () leave the model as it is.

    forget_bias: the mean bias of the forget gates, of an LSTM
    scaled: whether attention scores are divided by √H
    window: how many steps attention reaches back, itself included
    inner_rate: TTT's η; where η is learned, the base rate it is a fraction of
    knock_out: pairs (layer, what), as ("layers.0", 2) for a head, whose contribution becomes 0, or
        ("layers.0", "forget_gate") for a gate, which is held at 1; an update gate at 0, so that nothing is kept
    """

    forget_bias: float | None = None
    scaled: bool | None = None
    window: int | None = None
    inner_rate: float | None = None
    knock_out: Sequence[tuple[str, int | str]] = ()

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window: got {self.window}, expected at least 1 step, the step itself")
        if self.inner_rate is not None and self.inner_rate < 0:
            raise ValueError(f"inner_rate: got {self.inner_rate}, expected 0 or more")
        pairs: Any = self.knock_out
        if len(pairs) == 2 and isinstance(pairs[0], str):  # one pair
            object.__setattr__(self, "knock_out", (tuple(pairs),))

    def as_json(self) -> JsonObject:
        """Return what is changed as plain data."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


def changed(model: Any, changes: Changes, names: dict[str, str] | None = None) -> Any:
    """Return a changed copy of a model, or the model itself where nothing is changed.

    names: the paths of the layers by their names in a trace. Raise a ValueError for a change that concerns no layer.
    """
    if not changes.as_json():
        return model
    model = copy.deepcopy(model)
    with torch.no_grad():
        if changes.forget_bias is not None:
            for layer in _all(model, LSTM, "forget_bias"):
                _set_forget_bias(layer, changes.forget_bias)
        if changes.scaled is not None:
            for layer in _all(model, Attention, "scaled", CrossAttention):
                basic = isinstance(layer, BasicSelfAttention)
                width: Any = layer.width if basic else layer.head_width
                layer.scale = 1 / math.sqrt(width) if changes.scaled else 1.0
        if changes.window is not None:
            for layer in _all(model, Attention, "window"):
                layer.window = changes.window
        if changes.inner_rate is not None:
            for layer in _all(model, TTT, "inner_rate"):
                setattr(layer, "rate" if layer.rate_gate is None else "base_rate", changes.inner_rate)
        for name, what in changes.knock_out:
            _knock_out(_named(model, name, names or {}), name, what)
    return model


def _all(model: nn.Module, kind: type, what: str, *more: type) -> list[Any]:
    """Return the layers of some kinds; raise where there is none."""
    found = [module for module in model.modules() if isinstance(module, (kind, *more))]
    if not found:
        raise ValueError(f"{what}: this model has no layer that it concerns, expected one with a {kind.__name__}")
    return found


def _named(model: nn.Module, name: str, names: dict[str, str]) -> nn.Module:
    path = names.get(name, name)
    known = dict(model.named_modules())
    if path not in known or not isinstance(known[path], KINDS):
        expected = ", ".join(names) or "the path of a layer"
        raise ValueError(f"knock_out: got the layer {name!r}, expected one of {expected}{nearest(name, names)}")
    return known[path]


def _set_forget_bias(layer: LSTM, bias: float) -> None:
    """Shift the forget gates' biases so that their mean is `bias`: what was learned of each unit stays."""
    if layer.bias_ih is None or layer.bias_hh is None:
        raise ValueError("forget_bias: this LSTM has no biases")
    forget = slice(layer.hidden, 2 * layer.hidden)
    layer.bias_ih[forget] += bias - (layer.bias_ih[forget] + layer.bias_hh[forget]).mean()


def _knock_out(layer: Any, name: str, what: int | str) -> None:
    if isinstance(layer, Recurrence):
        return _hold_gate(layer, name, what)
    heads: Any = getattr(layer, "heads", None)
    out: Any = getattr(layer, "out", None)
    if out is None or not isinstance(layer, Attention | CrossAttention | LinearAttention | TTT):
        raise ValueError(f"knock_out: {name} is a {type(layer).__name__}, expected a layer with gates or heads")
    if not isinstance(what, int) or not 0 <= what < heads:
        raise ValueError(f"knock_out: got head {what!r} of {name}, expected 0 to {heads - 1}")
    width = out.in_features // heads
    out.weight[:, what * width : (what + 1) * width] = 0
    return None


def _hold_gate(layer: Recurrence[Any], name: str, what: int | str) -> None:
    gates = next((gates for kind, gates in GATES.items() if isinstance(layer, kind)), {})
    if what not in gates:
        expected = ", ".join(gates) or "a layer that has gates"
        raise ValueError(f"knock_out: got {what!r} of {name}, expected {expected}")
    if layer.bias_ih is None or layer.bias_hh is None:
        raise ValueError(f"knock_out: {name} has no biases to hold a gate with")
    block, is_open = gates[str(what)]
    rows = slice(block * layer.hidden, (block + 1) * layer.hidden)
    layer.weight_ih[rows], layer.weight_hh[rows], layer.bias_hh[rows] = 0, 0, 0
    layer.bias_ih[rows] = HELD if is_open else -HELD
