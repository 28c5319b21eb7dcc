"""The knobs of a model: what `rc.inspect` can change in it, as stops of a slider or a list.

| knob | values | `rc.inspect` |
| --- | --- | --- |
| forget | mean bias of an LSTM's forget gates | `forget_bias` |
| scale | 0 or 1 | `scaled` |
| window | steps that attention reaches back; 0: all | `window` |
| rate | factor of the inner learning rate of test-time training | `inner_rate` |
| knock | LAYER:HEAD or LAYER:GATE | `knock_out` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from recollect.core.types import JsonObject
from recollect.layers.attention.self_attention import Attention
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.ttt.layer import TTT

Value = float | int | str
BIASES = (-2, -1, 0, 1, 2, 3, 4)
WINDOWS = (1, 2, 4, 8, 16, 32, 0)
RATES = (0, 0.5, 1, 2, 4)
GATES = ("input", "forget", "output", "reset", "update")
MOST_KNOCKED = 8  # heads and gates that are offered: the last ones of a deep model


@dataclass(frozen=True)
class Knob:
    """One knob: its values in order, and the place of the one that a model has as it was trained."""

    id: str
    values: tuple[Value, ...]
    base: int

    def as_json(self) -> JsonObject:
        """Return plain data."""
        return asdict(self)


def knobs_of(model: nn.Module, layers: Sequence[JsonObject]) -> list[Knob]:
    """Return the knobs that a model has; `layers` are those of its trace."""
    found = []
    biases = forget_biases(model)
    if biases:
        own = round(sum(biases) / len(biases), 2)
        values = sorted({*BIASES, own})
        found.append(Knob("forget", tuple(values), values.index(own)))
    attentions = [one for one in model.modules() if isinstance(one, Attention)]
    if attentions:
        found.append(Knob("scale", (0, 1), int(attentions[0].scale != 1)))
    if attentions and all(one.causal and one.window is None for one in attentions):
        found.append(Knob("window", WINDOWS, len(WINDOWS) - 1))
    if any(isinstance(one, TTT) for one in model.modules()):
        found.append(Knob("rate", RATES, RATES.index(1)))
    knocked = [name for layer in layers for name in _parts(layer)][-MOST_KNOCKED:]
    return [*found, *([Knob("knock", ("none", *knocked), 0)] if knocked else [])]


def forget_biases(model: nn.Module) -> list[float]:
    """Return the mean bias of the forget gates of each LSTM."""
    found = []
    for one in model.modules():
        if isinstance(one, LSTM) and one.bias_ih is not None and one.bias_hh is not None:
            forget = slice(one.hidden, 2 * one.hidden)
            found.append(float((one.bias_ih[forget] + one.bias_hh[forget]).detach().mean()))
    return found


def _parts(layer: JsonObject) -> list[str]:
    """Return what can be knocked out of a layer: its heads, or its gates; the candidate is none."""
    if "heads" in layer:
        return [f"{layer['name']}:{head}" for head in range(layer["heads"])]
    return [f"{layer['name']}:{gate}_gate" for gate in layer.get("gates", ()) if gate in GATES]


def changes_of(model: nn.Module, knobs: Sequence[Knob], asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the keywords of `rc.inspect` for knobs turned to values, as words; raise a ValueError for others."""
    known = {knob.id: {str(value): value for value in knob.values} for knob in knobs}
    found: dict[str, Any] = {}
    for name, word in asked.items():
        if name not in known:
            raise ValueError(f"{name}: no knob of this model, expected one of {', '.join(known) or '(none)'}")
        if word not in known[name]:
            raise ValueError(f"{name}: got {word!r}, expected one of {', '.join(known[name])}")
        found |= _change(model, name, known[name][word])
    return found


def _change(model: nn.Module, name: str, value: Any) -> dict[str, Any]:
    if name == "forget":
        return {"forget_bias": float(value)}
    if name == "scale":
        return {"scaled": bool(value)}
    if name == "window":
        return {"window": value or None}
    if name == "rate":
        return {"inner_rate": value * _inner_rate(model)}
    layer, _, part = value.partition(":")
    what = int(part) if part.isdigit() else part
    return {"knock_out": () if value == "none" else ((layer, what),)}


def _inner_rate(model: nn.Module) -> float:
    """Return the rate of the first layer of test-time training; where it is learned, the base rate."""
    layer = next(one for one in model.modules() if isinstance(one, TTT))
    return layer.base_rate if isinstance(layer.rate, str) else layer.rate
