"""The contract: a layer maps a chunk of a sequence and a memory to outputs and the memory after it.

    y, memory = layer(x, memory)

The same call reads one step, a chunk or a whole sequence. A layer implements two methods, `initial_memory` and `read`,
the readable form; `fast`, a faster form with the same results, is optional.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from recollect.core.dispatch import ask
from recollect.core.memory import Memory
from recollect.core.record import is_readable
from recollect.core.validate import check_input, check_memory, check_padding, check_valid, fill_invalid

M = TypeVar("M", bound=Memory)


class SequenceLayer(nn.Module, Generic[M]):
    """The base class of all layers: outputs and the next memory from inputs and a memory.

    `width` is the size D of the inputs (B, T, D), or None where they are ids (B, T); `width_out` that of the
    outputs. `growth` states how the memory's bytes grow with the steps read: "none", "constant", "saturates"
    or "linear".

    >>> class Average(rc.SequenceLayer):
    ...     width = width_out = 4
    ...     growth = "none"
    ...     def initial_memory(self, batch_size, like=None):
    ...         return rc.Nothing()
    ...     def read(self, x, memory, valid):
    ...         return x.mean(2, keepdim=True).expand_as(x), memory
    >>> rc.check_layer(Average())
    """

    width: int | None
    width_out: int
    growth: str = "constant"
    chunk_sizes: tuple[int, ...] = ()  # that it computes in: `check_layer` tries lengths beyond each of these
    vocab_size: int  # where the inputs are ids
    kernel: str | None = None  # the name under which device code knows its equations; None: there is none

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks; False: it must be read at once."""
        return True

    @property
    def carries(self) -> bool:
        """Whether training carries the memory from one chunk of text to the next: where its size is bounded."""
        return self.growth != "linear"

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """Return the memory before the first step, with the dtype and device of the parameters, or of `like`."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Compute outputs and memory in the readable form. x is zero at padding; y may be anything there."""
        raise NotImplementedError

    def fast(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Compute the outputs, memory and gradients of `read`, faster."""
        return self.read(x, memory, valid)

    def forward(self, x: Tensor, memory: M | None = None, *, valid: Tensor | None = None) -> tuple[Tensor, M]:
        """Read x (B, T, D), or ids (B, T), continuing from `memory` (None: from the beginning).

        `valid` (B, T) is True at real steps, a prefix of each row (right padding; `rc.pad` makes such batches).
        At padding outputs are zero and the memory does not change. A mask that is not a prefix, as from left padding,
        raises where that can be checked without a device sync: on the CPU, outside compilation.
        """
        x = self.enter(x, valid)
        if memory is not None:
            self._check_memory(memory, x)
        found = None if is_readable() else self._accelerated(x, memory, valid)
        if found is None:
            if memory is None:
                memory = self.initial_memory(len(x), like=x)
            found = self.read(x, memory, valid) if is_readable() else self.fast(x, memory, valid)
        y, memory = found
        return fill_invalid(y, valid), memory

    def _accelerated(self, x: Tensor, memory: M | None, valid: Tensor | None) -> tuple[Tensor, M] | None:
        """Read with our device code; None: it does not apply.

        Without a memory none is made first: a kernel may not need it, and making it takes time. Under torch.compile the
        layer is left to the compiler.
        """
        if self.kernel is None or torch.compiler.is_compiling():
            return None
        found: tuple[Tensor, M] | None = ask("layer", x.device.type, self, x, memory, valid)
        return found

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the inputs, and return x with zeros at padding."""
        dtype, device = self._home()
        check_input(x, self.width, dtype, device)
        if valid is not None:
            check_valid(valid, x)
            check_padding(valid)
            x = fill_invalid(x, valid)
        return x

    def _home(self) -> tuple[torch.dtype | None, torch.device | None]:
        """Return the dtype and device of the parameters, where there are any."""
        p = _first_parameter(self)
        return (None, None) if p is None else (p.dtype, p.device)

    def _check_memory(self, memory: M, x: Tensor) -> None:
        """Raise for a memory of another layer, batch size, dtype or device."""
        check_memory(memory, self.initial_memory(0, like=x), len(x))

    def _like(self, like: Tensor | None) -> dict[str, Any]:
        """Return dtype and device for new memory: of `like` where it holds floats, else of the parameters."""
        dtype, device = self._home()
        if like is not None:
            device = like.device
            dtype = like.dtype if like.is_floating_point() else dtype
        return {"dtype": dtype or torch.get_default_dtype(), "device": device}


def _first_parameter(module: nn.Module) -> nn.Parameter | None:
    """Return the first floating-point parameter, as `parameters()` would; that is slower, and every call needs it."""
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
    """Read step by step: the definition that every other form of reading must equal.

    >>> layer, x = rc.GRU(4, 8), torch.ones(2, 5, 4)
    >>> torch.allclose(rc.scan(layer, x)[0], layer(x)[0], atol=1e-6)
    True
    """
    if memory is None:
        memory = layer.initial_memory(len(x), like=x)
    outputs = [layer(x[:, :0], memory)[0]]
    for t in range(x.shape[1]):
        y, memory = layer(x[:, t : t + 1], memory, valid=None if valid is None else valid[:, t : t + 1])
        outputs.append(y)
    return torch.cat(outputs, dim=1), memory
