"""Layers made of layers: one after another, added to what they read, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.layer import M, SequenceLayer
from recollect.core.memory import Both, Layers, Memory
from recollect.core.record import is_watched
from recollect.core.validate import ContractError


class Stack(SequenceLayer[Layers]):
    """One layer after another: the outputs of each are the inputs of the next."""

    def __init__(self, *layers: SequenceLayer[Any]) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers: got none, expected at least one layer")
        for i, (below, above) in enumerate(pairwise(layers)):
            if above.width != below.width_out:
                raise ContractError(
                    f"layers[{i + 1}]", f"width {above.width}", f"{below.width_out}, what layers[{i}] gives"
                )
        self.layers = nn.ModuleList(layers)
        self.width, self.width_out = layers[0].width, layers[-1].width_out
        self.growth = strongest_growth(layers)
        if self.width is None:
            self.vocab_size = layers[0].vocab_size

    @property
    def streams(self) -> bool:
        """A stack streams if all its layers do."""
        return all(layer.streams for layer in self)

    def __iter__(self) -> Any:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> SequenceLayer[Any]:
        layer = self.layers[i]
        assert isinstance(layer, SequenceLayer)
        return layer

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Begin with every layer's initial memory."""
        return Layers(layers=tuple(layer.initial_memory(batch_size, like) for layer in self))

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Pass x through the layers, each with its own memory."""
        after = []
        for layer, own in zip(self, memory.layers, strict=True):
            x, own = layer(x, own, valid=valid)
            after.append(own)
        return x, Layers(layers=tuple(after))

    def fast(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """The same, in which layers may read together."""
        return self.read(x, memory, valid) if torch.compiler.is_compiling() else self._fast(x, memory.layers, valid)

    def fast_from_nothing(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Layers] | None:
        """Let every layer begin by itself; not in autocast, where a layer's x may be narrower than its memory."""
        if torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type) or is_watched(*self):
            return None
        return self._fast(x, [None] * len(self), valid) if any(layer.begins_bare for layer in self) else None

    def _fast(self, x: Tensor, memories: Sequence[Any], valid: Tensor | None) -> tuple[Tensor, Layers]:
        layers: list[SequenceLayer[Any]] = list(self)
        after: list[Memory] = []
        while len(after) < len(layers):
            layer, *others = layers[len(after) :]
            own = memories[len(after) :]
            may_join = own[0] is not None or layer.begins_bare
            found = layer.fast_along(others, x, own, valid) if may_join else None
            if found is None:
                x, alone = layer(x, own[0], valid=valid)
                after.append(alone)
            else:
                x, more = found
                after += more
        return x, Layers(layers=tuple(after))

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        # Each layer checks its own; here only that there is one memory for each.
        if not isinstance(memory, Layers) or len(memory.layers) != len(self):
            raise ContractError("memory", _describe(memory), f"Layers of {len(self)} memories, as this stack gives")


class Residual(SequenceLayer[M]):
    """x + layer(x)."""

    def __init__(self, layer: SequenceLayer[M]) -> None:
        super().__init__()
        if layer.width != layer.width_out or layer.width is None:
            raise ContractError(
                "layer", f"width {layer.width} to {layer.width_out}", "equal widths, so that x can be added"
            )
        self.layer = layer
        self.width, self.width_out, self.growth = layer.width, layer.width_out, layer.growth

    @property
    def streams(self) -> bool:
        """As the layer inside."""
        return self.layer.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """As the layer inside."""
        return self.layer.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Add what the layer gives to what came in."""
        y, memory = self.layer(x, memory, valid=valid)
        return x + y, memory

    def _check_memory(self, memory: M, x: Tensor) -> None:
        pass  # the layer inside checks it


class Bidirectional(SequenceLayer[Both]):
    """Two layers, one reading each row forwards, one backwards from the row's own end; outputs side by side.

    Schuster & Paliwal 1997. The memory given holds the two initial states, the one returned the two final
    ones. Values recorded inside `backward` are in its reading order, last step first.
    """

    def __init__(self, forward: SequenceLayer[Any], backward: SequenceLayer[Any]) -> None:
        super().__init__()
        if forward.width != backward.width:
            raise ContractError("backward", f"width {backward.width}", f"{forward.width}, as forward")
        self.forwards, self.backwards = forward, backward
        self.width, self.width_out = forward.width, forward.width_out + backward.width_out
        self.growth = strongest_growth([forward, backward])
        self.begins_bare = forward.begins_bare and backward.begins_bare
        if self.width is None:
            self.vocab_size = forward.vocab_size

    @property
    def streams(self) -> bool:
        """No: the backward half begins at the end."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Both:
        """Begin with both layers' initial memories."""
        return Both(
            forward=self.forwards.initial_memory(batch_size, like),
            backward=self.backwards.initial_memory(batch_size, like),
        )

    def read(self, x: Tensor, memory: Both, valid: Tensor | None) -> tuple[Tensor, Both]:
        """Read in both directions; the reversed outputs are turned back before they are joined."""
        ahead, after = self.forwards(x, memory.forward, valid=valid)
        back, before = self.backwards(reverse_rows(x, valid), memory.backward, valid=valid)
        return torch.cat([ahead, reverse_rows(back, valid)], dim=-1), Both(forward=after, backward=before)

    def fast(self, x: Tensor, memory: Both, valid: Tensor | None) -> tuple[Tensor, Both]:
        """Read in both directions at the same time where the layers know how."""
        found = self._at_once(x, (memory.forward, memory.backward), valid)
        return self.read(x, memory, valid) if found is None else found

    def fast_from_nothing(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Both] | None:
        """Let both begin by themselves, where they read at the same time."""
        return self._at_once(x, (None, None), valid) if self.begins_bare else None

    def _at_once(self, x: Tensor, memories: tuple[Any, Any], valid: Tensor | None) -> tuple[Tensor, Both] | None:
        found = self.forwards.read_both_ways(self.backwards, x, memories, valid)
        if found is None:
            return None
        (ahead, after), (back, before) = found
        return torch.cat([ahead, back], dim=-1), Both(forward=after, backward=before)

    def _check_memory(self, memory: Both, x: Tensor) -> None:
        if not isinstance(memory, Both):
            raise ContractError("memory", _describe(memory), "Both, the states of two directions")


def reverse_rows(x: Tensor, valid: Tensor | None) -> Tensor:
    """Turn every row around within its own length; padding stays at the end."""
    if valid is None:
        return x.flip(1)
    step = torch.arange(x.shape[1], device=x.device)
    source = torch.where(valid, valid.sum(1, keepdim=True) - 1 - step, step)  # (B, T)
    return x.gather(1, source.reshape(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))


def _describe(memory: Memory) -> str:
    return f"Layers of {len(memory.layers)} memories" if isinstance(memory, Layers) else type(memory).__name__


def strongest_growth(layers: Any) -> str:
    """Say how a sum of memories grows: as its fastest part."""
    order = ["none", "constant", "saturates", "linear"]
    return max((layer.growth for layer in layers), key=order.index)
