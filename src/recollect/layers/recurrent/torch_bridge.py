"""Conversion from and to `torch.nn.RNN`, `GRU` and `LSTM`: weights and states, of stacks and of both directions.

torch orders a module layer by layer, forward before backward: weights `weight_ih_l0`, `weight_ih_l0_reverse`,
`weight_ih_l1`, …, and states as (layers · directions, B, H). `cells` lists ours in that order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Stack
from recollect.core.memory import Both, Layers, Memory, Nothing
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError
from recollect.layers.pointwise import Dropout
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import AnyRecurrence, Hidden, HiddenCell, Recurrence
from recollect.layers.recurrent.rnn import RNN

State: TypeAlias = Tensor | tuple[Tensor, Tensor]
PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
METHODS = (
    "step",
    "read",
    "fast",
    "fused",
    "fused_step",
)  # the methods that implement the equations and their fast forms
KINDS: tuple[type[AnyRecurrence], ...] = (RNN, GRU, LSTM)


class RecurrentStack(Stack):
    """A stack of recurrent layers, each in one or both directions, with dropout between them, as torch builds it.

    >>> theirs = torch.nn.LSTM(4, 8, num_layers=2, bidirectional=True, batch_first=True)
    >>> ours = rc.LSTM.from_torch(theirs)
    >>> x = torch.ones(2, 5, 4)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """

    def to_torch(self) -> nn.RNNBase:
        """Return a `torch.nn` module with the same weights and outputs (batch first)."""
        return to_torch(self)

    def memory_from_torch(self, state: State) -> Memory:
        """Return our memory for torch's h, or (h, c)."""
        return memory_from_torch(self, state)

    def memory_to_torch(self, memory: Memory) -> State:
        """Return torch's h, or (h, c), for our memory."""
        return memory_to_torch(self, memory)


def build_stack(
    kind: type[AnyRecurrence],
    width: int,
    hidden: int,
    layers: int,
    *,
    bidirectional: bool,
    dropout: float,
    **options: Any,
) -> RecurrentStack:
    """Return a stack of `layers` recurrent layers; `bidirectional` ones read in both directions."""
    if layers < 1:
        raise ValueError(f"layers: got {layers}, expected at least 1")
    parts: list[AnyLayer] = []
    for level in range(layers):
        if level and dropout:
            parts.append(Dropout(width, dropout))
        layer: AnyLayer = kind(width, hidden, **options)
        if bidirectional:
            layer = Bidirectional(layer, kind(width, hidden, **options))
        parts.append(layer)
        width = layer.width_out
    return RecurrentStack(*parts)


def cells(layer: AnyLayer) -> list[AnyRecurrence]:
    """Return the recurrent layers inside, in torch's order."""
    if isinstance(layer, Recurrence):
        return [layer]
    if isinstance(layer, Bidirectional):
        return cells(layer.forwards) + cells(layer.backwards)
    if isinstance(layer, Stack):
        return [cell for inner in layer for cell in cells(inner)]
    return []


def written_kind(layer: AnyLayer) -> type[AnyRecurrence] | None:
    """Return which of RNN, GRU and LSTM has the equations of a layer; None: a subclass with others, or another layer.

    Weights that are computed from others, as by weight norm, leave the equations as they are.
    """
    kind: type = type(layer)
    return _kind_of(kind)


@lru_cache(maxsize=256)
def _kind_of(kind: type) -> type[AnyRecurrence] | None:
    same = (ours for ours in KINDS if issubclass(kind, ours))
    return next((ours for ours in same if all(getattr(kind, m) is getattr(ours, m) for m in METHODS)), None)


def from_torch(kind: type[AnyRecurrence], module: nn.RNNBase) -> Any:
    """Return a copy of a torch module: `kind` for one layer in one direction, else a `RecurrentStack`.

    A subclass is accepted if it has torch's `forward`; weights that it computes from others are copied as computed.
    """
    theirs = getattr(nn, next(ours.__name__ for ours in KINDS if issubclass(kind, ours)))
    if not isinstance(module, theirs):
        raise ContractError("module", f"torch.nn.{type(module).__name__}", f"torch.nn.{theirs.__name__}")
    if type(module).forward is not theirs.forward:
        raise ContractError(
            "module", f"{type(module).__name__} with a forward of its own", f"torch.nn.{theirs.__name__}"
        )
    if module.proj_size:
        raise ContractError("module", f"proj_size {module.proj_size}", "0: projections are not part of this layer")
    options: dict[str, Any] = {
        "bias": module.bias,
        "dtype": module.weight_ih_l0.dtype,
        "device": module.weight_ih_l0.device,
    }
    if isinstance(module, nn.RNN):
        options["nonlinearity"] = module.nonlinearity
    layer: AnyLayer
    if module.num_layers == 1 and not module.bidirectional:
        layer = kind(module.input_size, module.hidden_size, **options)
    else:
        shape: dict[str, Any] = {"bidirectional": module.bidirectional, "dropout": module.dropout}
        layer = build_stack(kind, module.input_size, module.hidden_size, module.num_layers, **shape, **options)
    _copy_weights(layer, module, to_torch=False)
    return layer.train(module.training)


def to_torch(layer: AnyLayer) -> nn.RNNBase:
    """Return a copy of our layer as a torch module with the same outputs (batch first)."""
    inside = cells(layer)
    first = inside[0]
    kind = written_kind(first)
    if kind is None:
        raise ContractError("layer", f"{type(first).__name__} with equations of its own", "RNN, GRU or LSTM")
    if isinstance(first, GRU) and first.reset == "before":
        raise ContractError("layer", "GRU with reset='before'", "reset='after': torch has no other form")
    both = isinstance(layer, Stack) and isinstance(layer[0], Bidirectional)
    rate = next((inner.rate for inner in layer if isinstance(inner, Dropout)), 0.0) if isinstance(layer, Stack) else 0.0
    options: dict[str, Any] = {
        "num_layers": len(inside) // (2 if both else 1),
        "bidirectional": both,
        "dropout": rate,
    }
    options |= {
        "bias": first.bias_ih is not None,
        "dtype": first.weight_ih.dtype,
        "device": first.weight_ih.device,
    }
    if isinstance(first, RNN):
        options["nonlinearity"] = first.nonlinearity
    module: nn.RNNBase = getattr(nn, kind.__name__)(first.width, first.hidden, batch_first=True, **options)
    if _plan(from_torch(kind, module)) != _plan(layer):
        raise ContractError("layer", "unlike layers", "what torch can build: one kind, size and form, one dropout rate")
    _copy_weights(layer, module, to_torch=True)
    return module.train(layer.training)


def _plan(layer: AnyLayer) -> list[tuple[object, ...]]:
    """Return the structure of a layer: kinds, sizes and options, without the weights."""
    if isinstance(layer, Stack):
        return [plan for inner in layer for plan in _plan(inner)]
    if isinstance(layer, Bidirectional):
        return [(*_plan(layer.forwards), *_plan(layer.backwards))]
    names = ("width", "hidden", "rate", "nonlinearity", "reset")
    has_bias = getattr(layer, "bias_ih", None) is not None
    kind = written_kind(layer) or type(layer)
    return [(kind.__name__, has_bias, *(getattr(layer, name, None) for name in names))]


def _copy_weights(layer: AnyLayer, module: nn.RNNBase, *, to_torch: bool) -> None:
    suffixes = [
        f"_l{i}{end}" for i in range(module.num_layers) for end in (["", "_reverse"] if module.bidirectional else [""])
    ]
    with torch.no_grad():
        for cell, suffix in zip(cells(layer), suffixes, strict=True):
            for name in PARAMETERS if module.bias else PARAMETERS[:2]:
                ours, theirs = getattr(cell, name), getattr(module, name + suffix)
                source, target = (ours, theirs) if to_torch else (theirs, ours)
                target.copy_(source)
                target.requires_grad_(source.requires_grad)  # frozen weights stay frozen


def memory_from_torch(layer: AnyLayer, state: State) -> Memory:
    """Return our memory from torch's stacked states."""
    h, c = state if isinstance(state, tuple) else (state, None)
    inside = cells(layer)
    if len(h) != len(inside):
        raise ContractError("state", f"{len(h)} layers and directions", len(inside))
    if (c is not None) != isinstance(inside[0], LSTM):
        raise ContractError("state", "(h, c)" if c is not None else "h alone", "(h, c) for an LSTM, h for the others")
    parts = iter(
        Hidden(hidden=h[i].clone()) if c is None else HiddenCell(hidden=h[i].clone(), cell=c[i].clone())
        for i in range(len(h))
    )

    def memory_of(inner: AnyLayer) -> Memory:
        if isinstance(inner, Stack):
            return Layers(layers=tuple(memory_of(part) for part in inner))
        if isinstance(inner, Bidirectional):
            return Both(forward=memory_of(inner.forwards), backward=memory_of(inner.backwards))
        return next(parts) if isinstance(inner, Recurrence) else Nothing()

    return memory_of(layer)


def memory_to_torch(layer: AnyLayer, memory: Memory) -> State:
    """Return torch's stacked states from our memory."""
    tensors = memory.tensors()
    hidden = torch.stack([t for name, t in tensors.items() if name.endswith("hidden")])  # (layers · directions, B, H)
    if not isinstance(cells(layer)[0], LSTM):
        return hidden
    return hidden, torch.stack([t for name, t in tensors.items() if name.endswith("cell")])
