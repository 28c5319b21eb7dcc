"""Layers made of layers: stacked, with a residual connection, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import torch
from torch import Tensor, nn

from recollect.core.dispatch import ask, find
from recollect.core.layer import M, SequenceLayer
from recollect.core.memory import Both, Layers, Memory
from recollect.core.record import is_watched
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError

# Classes of torch.nn and their counterparts here.
SAME = ("Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout", "RNN", "GRU", "LSTM")
OURS = {name: name for name in SAME} | {
    "Sequential": "Stack",
    "MultiheadAttention": "SelfAttention",
    "TransformerEncoderLayer": "Block",
    "Conv1d": "Convolution",
}


class Stack(SequenceLayer[Layers]):
    """One layer after another: the outputs of each are the inputs of the next.

    >>> stack = rc.Stack(rc.Embedding(10, 4), rc.GRU(4, 8), rc.Linear(8, 10))
    >>> y, memory = stack(torch.tensor([[1, 2, 3]]))
    >>> tuple(y.shape), [type(one).__name__ for one in memory.layers]
    ((1, 3, 10), ['Nothing', 'Hidden', 'Nothing'])
    >>> y, memory = stack(torch.tensor([[4]]), memory)  # continues where the first three ended
    """

    def __init__(self, *layers: AnyLayer) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers: got none, expected at least one layer")
        for i, layer in enumerate(layers):
            _check_kind(f"layers[{i}]", layer)
        for i, (below, above) in enumerate(pairwise(layers)):
            if above.width != below.width_out:
                raise ContractError(
                    f"layers[{i + 1}]", f"width {above.width}", f"{below.width_out}, the output width of layers[{i}]"
                )
        self.layers = nn.ModuleList(layers)
        self.width, self.width_out = layers[0].width, layers[-1].width_out
        self.growth = strongest_growth(layers)
        self.kernel = "stack" if any(layer.kernel for layer in layers) else None
        if self.width is None:
            self.vocab_size = layers[0].vocab_size

    @property
    def streams(self) -> bool:
        """A stack streams if all its layers do."""
        return all(layer.streams for layer in self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, i: int) -> AnyLayer: ...

    @overload
    def __getitem__(self, i: slice) -> Stack: ...

    def __getitem__(self, i: int | slice) -> AnyLayer:
        """Return one layer, or for a slice a stack of the same layers: `body[:-1]` shares their weights."""
        layers: list[AnyLayer] = list(self)
        if isinstance(i, int):
            return layers[i]
        if not layers[i]:
            raise ValueError(f"layers: got none, as [{_text(i)}] of {len(layers)}, expected at least one layer")
        return Stack(*layers[i])

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memories of all layers."""
        return Layers(layers=tuple(layer.initial_memory(batch_size, like) for layer in self))

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Read with each layer in turn, each with its own memory."""
        after = []
        for layer, own in zip(self, memory.layers, strict=True):
            x, own = layer(x, own, valid=valid)
            after.append(own)
        return x, Layers(layers=tuple(after))

    def _accelerated(self, x: Tensor, memory: Layers | None, valid: Tensor | None) -> tuple[Tensor, Layers] | None:
        """Read with each layer in turn; device code may read with several neighbours at once.

        Without a memory, each layer makes its own initial one. Not so under autocast, where a layer's inputs may have a
        lower precision than its memory, nor with hooks, which see the memory that the layer is called with.
        """
        join = None if self.kernel is None or torch.compiler.is_compiling() else find("neighbours", x.device.type)
        if join is None or (memory is None and (torch.is_autocast_enabled(x.device.type) or is_watched(*self))):
            return None
        layers: list[AnyLayer] = list(self)
        before: Sequence[Memory | None] = [None] * len(layers) if memory is None else memory.layers
        after: list[Memory] = []
        while len(after) < len(layers):
            at = len(after)
            found = join(layers[at:], x, before[at:], valid) if layers[at].kernel is not None else None
            if found is None:
                x, own = layers[at](x, before[at], valid=valid)
                after.append(own)
            else:
                x, joined = found
                after += joined
        return x, Layers(layers=tuple(after))

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        # Each layer checks its own memory; here only their number is checked.
        if not isinstance(memory, Layers) or len(memory.layers) != len(self):
            raise ContractError("memory", _describe(memory), f"Layers of {len(self)} memories, as this stack returns")


class Repeated(SequenceLayer[Layers]):
    """One layer several times in sequence with the same weights (Dehghani et al. 2019; ALBERT, Lan et al. 2020).

    Each time has a memory of its own. `record` shows the values of all times under one name, in reading order.

    >>> layer = rc.Repeated(rc.GRU(4, 4), times=3)
    >>> y, memory = layer(torch.zeros(2, 5, 4))
    >>> len(memory.layers), len(list(layer.parameters()))  # three memories, the weights of one GRU
    (3, 4)
    """

    def __init__(self, layer: AnyLayer, times: int) -> None:
        super().__init__()
        _check_kind("layer", layer)
        if times < 1:
            raise ValueError(f"times: got {times}, expected at least 1")
        if layer.width != layer.width_out:
            raise ContractError(
                "layer", f"width {layer.width} to {layer.width_out}", "equal widths, so that it can read its outputs"
            )
        self.layer = layer
        self.times = times
        self.width, self.width_out, self.growth = layer.width, layer.width_out, layer.growth

    @property
    def streams(self) -> bool:
        """As the inner layer."""
        return self.layer.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return an initial memory for each time."""
        return Layers(layers=tuple(self.layer.initial_memory(batch_size, like) for _ in range(self.times)))

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Read with the layer again and again."""
        after = []
        for own in memory.layers:
            x, own = self.layer(x, own, valid=valid)
            after.append(own)
        return x, Layers(layers=tuple(after))

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        if not isinstance(memory, Layers) or len(memory.layers) != self.times:
            raise ContractError("memory", _describe(memory), f"Layers of {self.times} memories, one for each time")


class Residual(SequenceLayer[M]):
    """x + layer(x).

    >>> layer = rc.Residual(rc.Linear(4, 4, bias=False))
    >>> layer.layer.linear.weight.data.zero_()[0].tolist()
    [0.0, 0.0, 0.0, 0.0]
    >>> layer(torch.ones(1, 1, 4))[0].tolist()
    [[[1.0, 1.0, 1.0, 1.0]]]
    """

    def __init__(self, layer: SequenceLayer[M]) -> None:
        super().__init__()
        _check_kind("layer", layer)
        if layer.width != layer.width_out or layer.width is None:
            raise ContractError(
                "layer", f"width {layer.width} to {layer.width_out}", "equal widths, so that x can be added"
            )
        self.layer = layer
        self.width, self.width_out, self.growth = layer.width, layer.width_out, layer.growth

    @property
    def streams(self) -> bool:
        """As the inner layer."""
        return self.layer.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """Return the initial memory of the inner layer."""
        return self.layer.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Return x + layer(x)."""
        y, memory = self.layer(x, memory, valid=valid)
        return x + y, memory

    def _check_memory(self, memory: M, x: Tensor) -> None:
        pass  # the inner layer checks it


class Bidirectional(SequenceLayer[Both]):
    """Two layers, one reads each row forwards, one backwards from the row's own end; outputs are concatenated.

    Schuster & Paliwal 1997. The memory passed in holds the two initial states, the one returned the two final
    ones. Values recorded inside `backward` are in its reading order, last step first.

    >>> layer = rc.Bidirectional(rc.GRU(4, 8), rc.GRU(4, 8))
    >>> y, memory = layer(torch.zeros(2, 5, 4))
    >>> tuple(y.shape), layer.streams, type(memory).__name__
    ((2, 5, 16), False, 'Both')
    """

    def __init__(self, forward: AnyLayer, backward: AnyLayer) -> None:
        super().__init__()
        _check_kind("forward", forward)
        _check_kind("backward", backward)
        if forward.width != backward.width:
            raise ContractError("backward", f"width {backward.width}", f"{forward.width}, as forward")
        self.forwards, self.backwards = forward, backward
        self.width, self.width_out = forward.width, forward.width_out + backward.width_out
        self.growth = strongest_growth([forward, backward])
        self.kernel = "both_directions" if forward.kernel and forward.kernel == backward.kernel else None
        if self.width is None:
            self.vocab_size = forward.vocab_size

    @property
    def streams(self) -> bool:
        """False: the backward layer begins at the end."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Both:
        """Return the initial memories of both layers."""
        return Both(
            forward=self.forwards.initial_memory(batch_size, like),
            backward=self.backwards.initial_memory(batch_size, like),
        )

    def read(self, x: Tensor, memory: Both, valid: Tensor | None) -> tuple[Tensor, Both]:
        """Read in both directions; the backward outputs are reversed again before they are concatenated."""
        ahead, after = self.forwards(x, memory.forward, valid=valid)
        back, before = self.backwards(reverse_rows(x, valid), memory.backward, valid=valid)
        return torch.cat([ahead, reverse_rows(back, valid)], dim=-1), Both(forward=after, backward=before)

    def _accelerated(self, x: Tensor, memory: Both | None, valid: Tensor | None) -> tuple[Tensor, Both] | None:
        """Read in both directions at once, where device code can."""
        if self.kernel is None or torch.compiler.is_compiling():
            return None
        memories = (None, None) if memory is None else (memory.forward, memory.backward)
        found = ask("both_directions", x.device.type, self.forwards, self.backwards, x, memories, valid)
        if found is None:
            return None
        (ahead, after), (back, before) = found
        return torch.cat([ahead, back], dim=-1), Both(forward=after, backward=before)

    def _check_memory(self, memory: Both, x: Tensor) -> None:
        if not isinstance(memory, Both):
            raise ContractError("memory", _describe(memory), "Both, the states of two directions")


def reverse_rows(x: Tensor, valid: Tensor | None) -> Tensor:
    """Reverse every row within its own length; padding stays at the end."""
    if valid is None:
        return x.flip(1)
    step = torch.arange(x.shape[1], device=x.device)
    source = torch.where(valid, valid.sum(1, keepdim=True) - 1 - step, step)  # (B, T)
    return x.gather(1, source.reshape(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))


def _check_kind(name: str, layer: object) -> None:
    """Raise for what is not a sequence layer; for a module of torch.nn name our counterpart."""
    if not isinstance(layer, SequenceLayer):
        kind = type(layer).__name__
        is_torch = type(layer).__module__.startswith("torch.nn.")
        next_step = f"use rc.{OURS[kind]}" if is_torch and kind in OURS else 'write one: CONTRIBUTING.md, "a layer"'
        got = f"{'torch.nn.' if is_torch else ''}{kind}"
        raise ContractError(name, got, f"a SequenceLayer, called as layer(x, memory); {next_step}")


def _text(part: slice) -> str:
    """Return a slice as it is written in code."""
    ends = ["" if end is None else str(end) for end in (part.start, part.stop, part.step)]
    return ":".join(ends if ends[2] else ends[:2])


def _describe(memory: Memory) -> str:
    return f"Layers of {len(memory.layers)} memories" if isinstance(memory, Layers) else type(memory).__name__


def strongest_growth(layers: Iterable[AnyLayer]) -> str:
    """Return the growth of several memories together: that of the fastest."""
    order = ["none", "constant", "saturates", "linear"]
    return max((layer.growth for layer in layers), key=order.index)
