"""The contract: a layer reads a stretch of a sequence and what it remembers, and gives back both anew.

    y, memory = layer(x, memory)

One method serves one step, a chunk and a whole sequence. A layer is written with two methods,
`initial_memory` and `read`, the readable form; `fast`, a quicker form with the same results, is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from recollect.entry import ContractError, check_input, check_memory, check_valid, fill_invalid
from recollect.memory import Both, Layers, Memory
from recollect.observe import is_readable, is_watched

M = TypeVar("M", bound=Memory)


class SequenceLayer(nn.Module, Generic[M]):
    """A way of remembering.

    `width` is the size D of the inputs (B, T, D), or None where they are ids (B, T); `width_out` that of the
    outputs. `growth` states how the memory's bytes follow the steps read: "none", "constant", "saturates"
    or "linear".
    """

    width: int | None
    width_out: int
    growth: str = "constant"
    vocab_size: int  # where the inputs are ids
    begins_bare: bool = False  # whether `fast_along` and `read_both_ways` take None for memories, at the beginning

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in pieces; False: it must be seen at once."""
        return True

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """Remember nothing yet, on the device and in the dtype of the parameters, or of `like`."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Read, in the form written for reading. x is zero where invalid; what y is there does not matter."""
        raise NotImplementedError

    def fast(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Read, in the form made for speed: the same outputs, memory and gradients."""
        return self.read(x, memory, valid)

    def fast_from_nothing(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, M] | None:
        """Read from the beginning without an initial memory, which costs time to make. None: with one, as always."""
        return None

    def fast_along(
        self, others: Sequence[SequenceLayer[Any]], x: Tensor, memories: Sequence[Memory], valid: Tensor | None
    ) -> tuple[Tensor, list[Memory]] | None:
        """Read, in a stack, together with some of the layers above: those have read for which memories come back.

        `memories` are this layer's and the others'. None: it reads alone, as always.
        """
        return None

    def forward(self, x: Tensor, memory: M | None = None, *, valid: Tensor | None = None) -> tuple[Tensor, M]:
        """Read x (B, T, D), or ids (B, T), going on from `memory` (None: from the beginning).

        `valid` (B, T) is True at real steps, a prefix of each row. Elsewhere outputs are zero and the memory
        does not move.
        """
        x, is_fast = self.enter(x, valid), not is_readable()
        found = self.fast_from_nothing(x, valid) if memory is None and is_fast else None
        if found is None:
            memory = self._begin(x, memory)
            found = self.fast(x, memory, valid) if is_fast else self.read(x, memory, valid)
        y, memory = found
        return fill_invalid(y, valid), memory

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check what comes in, and give x with zeros at padding."""
        dtype, device = self._home()
        check_input(x, self.width, dtype, device)
        if valid is not None:
            check_valid(valid, x)
            x = fill_invalid(x, valid)
        return x

    def _begin(self, x: Tensor, memory: M | None) -> M:
        """Check the memory to go on from, or give the first one."""
        if memory is None:
            return self.initial_memory(len(x), like=x)
        self._check_memory(memory, x)
        return memory

    def read_both_ways(
        self, other: SequenceLayer[Any], x: Tensor, memories: tuple[M | None, Any], valid: Tensor | None
    ) -> list[tuple[Tensor, Any]] | None:
        """Read forwards with this layer and at the same time backwards with another, all outputs in the order of x.

        `memories` may both be None, at the beginning. None: they read one after the other, as always.
        """
        return None

    def _home(self) -> tuple[torch.dtype | None, torch.device | None]:
        """Give the dtype and device of the parameters, where there are any."""
        p = _first_parameter(self)
        return (None, None) if p is None else (p.dtype, p.device)

    def _check_memory(self, memory: M, x: Tensor) -> None:
        """Refuse a memory of another layer, batch size, dtype or device."""
        check_memory(memory, self.initial_memory(0, like=x), len(x))

    def _like(self, like: Tensor | None) -> dict[str, Any]:
        """Give dtype and device for new memory: of `like` where it holds floats, else of the parameters."""
        dtype, device = self._home()
        if like is not None:
            device = like.device
            dtype = like.dtype if like.is_floating_point() else dtype
        return {"dtype": dtype or torch.get_default_dtype(), "device": device}


def _first_parameter(module: nn.Module) -> nn.Parameter | None:
    """Give the first parameter of floats, as `parameters()` would: that takes longer, and every call asks."""
    for p in module._parameters.values():
        if p is not None and p.is_floating_point():
            return p
    for below in module._modules.values():
        found = None if below is None else _first_parameter(below)
        if found is not None:
            return found
    return None


def scan(
    layer: SequenceLayer[M], x: Tensor, memory: M | None = None, *, valid: Tensor | None = None
) -> tuple[Tensor, M]:
    """Read step by step: the definition that every other way of reading must equal."""
    if memory is None:
        memory = layer.initial_memory(len(x), like=x)
    outputs = [layer(x[:, :0], memory)[0]]
    for t in range(x.shape[1]):
        y, memory = layer(x[:, t : t + 1], memory, valid=None if valid is None else valid[:, t : t + 1])
        outputs.append(y)
    return torch.cat(outputs, dim=1), memory


class Stack(SequenceLayer[Layers]):
    """One layer after another: the outputs of each are the inputs of the next."""

    def __init__(self, *layers: SequenceLayer[Any]) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers: seen none, wanted at least one layer")
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
