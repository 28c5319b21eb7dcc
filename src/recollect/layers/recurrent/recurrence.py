"""What RNN, GRU and LSTM share: weights, the loop over time, and the kernels that are quicker."""

from __future__ import annotations

import copy
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from recollect.accel.cpu import recurrence as recurrences
from recollect.accel.cuda.recurrent import persistent
from recollect.accel.cuda.single_step import step_recurrence
from recollect.core.compose import reverse_rows
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.record import is_watched, note
from recollect.core.validate import fill_invalid
from recollect.layers.recurrent.flat_weights import lay_together

if TYPE_CHECKING:
    from recollect.layers.recurrent.torch_bridge import RecurrentStack


@dataclass(frozen=True, eq=False, kw_only=True)
class Hidden(Memory):
    """A vector: all that an RNN or a GRU remembers."""

    hidden: Tensor  # (B, H)


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenCell(Hidden):
    """A vector, and a second one that gates protect: what an LSTM remembers."""

    cell: Tensor  # (B, H)


H = TypeVar("H", bound=Hidden)
Method = TypeVar("Method", bound=Callable[..., Any])


def begins_with_zeros(initial_memory: Method) -> Method:
    """Mark an `initial_memory` that is zero throughout: kernels need not be given that."""
    initial_memory.is_zero = True  # type: ignore[attr-defined]
    return initial_memory


# Weights that are not in one piece, as tied ones, cuDNN copies together at every call, and warns of it.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


class Recurrence(SequenceLayer[H]):
    """One vector per row, renewed at every step by the same weights.

    Weights have torch's layout, the gates' rows one below the other: `weight_ih` (G·H, D), `weight_hh` (G·H, H)
    and, with `bias`, two biases (G·H,), one for each product.
    """

    gates: int  # G
    kernel: str | None = None  # the cell's name among our own kernels
    remembers: type[Any] = Hidden
    begins_bare = True
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(self, width: int, hidden: int, *, bias: bool = True, **factory: Any) -> None:
        super().__init__()
        if width < 1 or hidden < 1:
            raise ValueError(f"width, hidden: got {width}, {hidden}, expected at least 1")
        self.width, self.width_out, self.hidden = width, hidden, hidden
        self.weight_ih = nn.Parameter(torch.empty(self.gates * hidden, width, **factory))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * hidden, hidden, **factory))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, nn.Parameter(torch.empty(self.gates * hidden, **factory)) if bias else None)
        self.reset_parameters()
        lay_together(self)

    def _apply(self, *given: Any, **options: Any) -> Any:
        super()._apply(*given, **options)  # type: ignore[no-untyped-call]
        lay_together(self)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        lay_together(self)  # a copy's weights are apart

    @property
    def has_own_weights(self) -> bool:
        """Whether the weights are this layer's parameters; not where one is made of others at every call."""
        return len(self._parameters) == 4

    def reset_parameters(self) -> None:
        """Draw all weights uniformly from ±1/√H, as torch does."""
        for p in self.parameters():
            nn.init.uniform_(p, -1 / math.sqrt(self.hidden), 1 / math.sqrt(self.hidden))

    @classmethod
    def stack(
        cls,
        width: int,
        hidden: int,
        depth: int,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        **options: Any,
    ) -> RecurrentStack:
        """Build `depth` such layers one above the other, in both directions where asked, dropout between them."""
        return _bridge().build_stack(cls, width, hidden, depth, bidirectional=bidirectional, dropout=dropout, **options)

    @classmethod
    def from_torch(cls, module: nn.RNNBase) -> Any:
        """Copy a `torch.nn` module: one layer in one direction gives this class, all else a `RecurrentStack`."""
        return _bridge().from_torch(cls, module)

    def to_torch(self) -> nn.RNNBase:
        """Give the `torch.nn` module that reads the same (batch first)."""
        return _bridge().to_torch(self)

    def memory_from_torch(self, state: Tensor | tuple[Tensor, Tensor]) -> Memory:
        """Give our memory for torch's h, or (h, c), of shape (1, B, H)."""
        return _bridge().memory_from_torch(self, state)

    def memory_to_torch(self, memory: Memory) -> Tensor | tuple[Tensor, Tensor]:
        """Give torch's h, or (h, c), for our memory."""
        return _bridge().memory_to_torch(self, memory)

    def step(self, from_x: Tensor, memory: H) -> tuple[H, dict[str, Tensor]]:
        """Renew the memory from W_ih x_t + b_ih (B, G·H); also give the inner values by name."""
        raise NotImplementedError

    def renew(self, from_x: Tensor, memory: H) -> H:
        """Do as `step` where nobody asks for inner values; on a GPU all but the product in one launch."""
        found = self.fused_step(from_x, memory) if _may_fuse(from_x) else None
        return self.step(from_x, memory)[0] if found is None else found

    def fused_step(self, from_x: Tensor, memory: H) -> H | None:
        """Step with the library's kernel; None where there is none."""
        return None

    def fused(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H] | None:
        """Read with the library's kernel; None where there is none."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H]:
        """Step through time; rows that have ended keep what they remember."""
        from_x = nn.functional.linear(x, self.weight_ih, self.bias_ih)  # (B, T, G·H)
        outputs, inner = [x.new_zeros(len(x), 0, self.hidden)], defaultdict(list)
        for t in range(x.shape[1]):
            renewed, values = self.step(from_x[:, t], memory)
            memory = renewed if valid is None else hold(renewed, memory, valid[:, t])
            outputs.append(memory.hidden[:, None])
            for name, value in values.items():
                inner[name].append(value)
        note(self, **{name: torch.stack(values, dim=1) for name, values in inner.items()})
        return torch.cat(outputs, dim=1), memory

    def fast(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H]:
        """Use our own kernels or the library's fused one, where there is one and it pays."""
        result = None if self.kernel is None else self._by_kernel(self.kernel, x, memory, valid)
        if result is None and self._pays(x):
            result = self.fused(x, memory, valid)
        return self.read(x, memory, valid) if result is None else result

    def _by_kernel(self, kernel: str, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H] | None:
        """Read with one of our kernels, where one can and pays; not where a weight is made of others at every call."""
        if torch.compiler.is_compiling() or not self.has_own_weights:
            return None
        if persistent.takes(kernel, x, self.hidden):
            return self._walk_on_gpu(kernel, x, memory, valid)
        found: Any = step_recurrence(self, kernel, x, memory, valid) if x.shape[1] == 1 else None
        return self._walk_on_cpu(kernel, x, memory, valid) if found is None and not x.is_cuda else found

    def fast_from_nothing(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, H] | None:
        """Read on a GPU: a walk writes zeros to begin with on its way, for the library one zero serves as h and c."""
        if torch.compiler.is_compiling() or self.kernel is None or not _begin_with_zeros(self):
            return None
        if self.has_own_weights and persistent.takes(self.kernel, x, self.hidden):
            return self._walk_on_gpu(self.kernel, x, None, valid)
        if not x.is_cuda or x.shape[1] == 1 or not self._pays(x):
            return None
        zero = x.new_zeros(len(x), self.hidden)  # (B, H)
        return self.fused(x, self._remember(None, zero, zero if self.remembers is HiddenCell else None), valid)

    def _walk_on_gpu(self, kernel: str, x: Tensor, memory: H | None, valid: Tensor | None) -> tuple[Tensor, H]:
        y, hidden, cell = persistent.read(kernel, self._given(x, memory), valid)
        return y, self._remember(memory, hidden, cell)

    def _remember(self, before: H | None, hidden: Tensor, cell: Tensor | None) -> H:
        """Give a memory of the kind that was given."""
        kind: type[H] = self.remembers if before is None else type(before)
        return kind(hidden=hidden) if cell is None else kind(hidden=hidden, cell=cell)  # type: ignore[call-arg]

    def read_both_ways(
        self, other: SequenceLayer[Any], x: Tensor, memories: tuple[H | None, Any], valid: Tensor | None
    ) -> list[tuple[Tensor, Any]] | None:
        """Walk from both ends at the same time; ragged rows, each with an end of its own, are turned around for it."""
        layers, is_ragged = [self, other], valid is not None
        if not self._is_taken(layers, x, memories, is_pile=False):
            return None
        self._check_memories(layers, memories, x)
        xs = [x, reverse_rows(x, valid) if is_ragged else x]
        found = self._read_several(layers, xs, memories, valid, is_pile=False, both_ways=not is_ragged)
        if found is not None and is_ragged:
            found[1] = reverse_rows(found[1][0], valid), found[1][1]
        return found

    def fast_along(
        self, others: Sequence[SequenceLayer[Any]], x: Tensor, memories: Sequence[Any], valid: Tensor | None
    ) -> tuple[Tensor, list[Any]] | None:
        """Walk through x as a wave: each layer reads what the one below it has read a moment before."""
        layers: list[Any] = [self, *takewhile(self._is_like, others)]
        if not self._is_taken(layers, x, memories, is_pile=True):
            return None
        self._check_memories(layers, memories, x)
        x = self.enter(x, valid)
        found = self._read_several(layers, [x], memories[: len(layers)], valid, is_pile=True)
        return None if found is None else (found[-1][0], [memory for _, memory in found])

    def _is_taken(self, layers: list[Any], x: Tensor, memories: Sequence[Any], *, is_pile: bool) -> bool:
        """Whether our kernels read with several layers at once."""
        if torch.compiler.is_compiling() or len(layers) < 2 or self.kernel is None or not self._is_like(layers[1]):
            return False
        if memories[0] is None and not _begin_with_zeros(*layers):
            return False
        return persistent.takes_several(self.kernel, x, self.hidden, len(layers), is_pile=is_pile)

    def _is_like(self, other: SequenceLayer[Any]) -> bool:
        """Whether one kernel can read with both: the same kind and sizes, weights of their own, and nobody watches."""
        if type(other) is not type(self) or not (self.has_own_weights and other.has_own_weights):
            return False
        same = all(getattr(self, name) == getattr(other, name) for name in ("kernel", "hidden"))
        return same and self._home() == other._home() and not is_watched(self, other)

    def _check_memories(self, layers: list[Any], memories: Sequence[Any], x: Tensor) -> None:
        for layer, memory in zip(layers, memories, strict=False):
            if memory is not None:
                layer._check_memory(memory, x)

    def _check_memory(self, memory: H, x: Tensor) -> None:
        """Let pass what is plainly right: to make a memory for comparison takes its time."""
        is_known = type(memory) is self.remembers and _begin_with_zeros(self)
        parts, wanted = memory.leaves() if is_known else [], (len(x), self.hidden)
        if not parts or any(t.shape != wanted or t.dtype != x.dtype or t.device != x.device for t in parts):
            super()._check_memory(memory, x)

    def _read_several(
        self, layers: list[Any], xs: list[Tensor], memories: Sequence[Any], valid: Tensor | None, **how: bool
    ) -> list[tuple[Any, Any]] | None:
        givens = [layer._given(x, memory) for layer, x, memory in zip_longest(layers, xs, memories)]
        if self.kernel is None or len({given.is_kept() for given in givens}) > 1:  # what is frozen stays so
            return None
        found = persistent.read_several(self.kernel, givens, valid, **how)
        return [
            (None if y is None else fill_invalid(y, valid), self._remember(memory, h, c))
            for (y, h, c), memory in zip(found, memories, strict=True)
        ]

    def _walk_on_cpu(self, kernel: str, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H] | None:
        given = self._given(x, memory)
        if not recurrences.pays(kernel, given, is_ragged=valid is not None):
            return None
        lengths = None if valid is None else valid.sum(1)
        y, *last = recurrences.read(kernel, given, lengths, lambda given: self._plainly(given, memory, valid))
        return y, _replace(memory, last)

    def _given(self, x: Tensor, memory: H | None) -> recurrences.Given:
        weights: Any = self._parameters.values()  # in this order; asking for each by name takes longer
        hidden = None if memory is None else memory.hidden
        return recurrences.Given(x, hidden, getattr(memory, "cell", None), *weights)

    def _plainly(self, given: recurrences.Given, memory: H, valid: Tensor | None) -> list[Tensor]:
        """Read what is given, which may be other tensors than those of this layer and memory."""
        twin: Recurrence[H] = copy.copy(self)
        twin._parameters = dict(zip(self._parameters, given[3:], strict=True))  # type: ignore[arg-type]
        y, after = twin.read(given.x, _replace(memory, [t for t in given[1:3] if t is not None]), valid)
        return [y, *after.tensors().values()]

    def _pays(self, x: Tensor) -> bool:
        # Fused kernels reject empty inputs and cost more than a few plain steps; in bf16 and fp16, which autocast
        # chooses too, the CPU's kernels end in an illegal instruction on some chips.
        is_narrow = x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(x.device.type)
        if x.numel() == 0 or (x.device.type == "cpu" and is_narrow):
            return False
        return x.shape[1] >= 4 or torch.is_grad_enabled()

    def _kernel_options(self) -> tuple[bool, int, float, bool, bool, bool]:
        """Biases, layers, dropout, training, both directions, batch first.

        cuDNN differentiates only what it read as training. Without dropout that changes no result, so it hangs on
        whether gradients are wanted, not on the module's mode.
        """
        return self.bias_ih is not None, 1, 0.0, torch.is_grad_enabled(), False, True

    def _weights(self) -> list[Tensor]:
        own: Any = self._parameters.values()  # asking for each by name takes longer
        if not self.has_own_weights:
            own = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        return [p for p in own if p is not None]


def _begin_with_zeros(*layers: SequenceLayer[Any]) -> bool:
    return all(getattr(layer.initial_memory, "is_zero", False) for layer in layers)


def _bridge() -> Any:
    # The bridge knows every recurrence, so it can only be met at run time.
    from recollect.layers.recurrent import torch_bridge

    return torch_bridge


def _may_fuse(from_x: Tensor) -> bool:
    """Whether the library's pointwise kernels, which are a GPU's, take this."""
    return from_x.is_cuda and not torch.compiler.is_compiling() and forward_ad._current_level < 0


def like_state(product: Tensor, state: Tensor) -> Tensor:
    """Give a product as the pointwise kernels want it: whole, and of the state's dtype, which autocast leaves wide."""
    return product.to(state.dtype).contiguous()


def _replace(memory: H, tensors: list[Tensor]) -> H:
    return type(memory)(**dict(zip(memory.tensors(), tensors, strict=True)))


def hold(renewed: H, before: H, valid: Tensor) -> H:
    """Keep the memory of rows that have ended."""
    parts = {
        name: torch.where(valid[:, None], new, old)
        for (name, new, _), (_, old, _) in zip(renewed._parts(), before._parts(), strict=True)
    }
    return type(renewed)(**parts)


def last_valid(outputs: Tensor, initial: Tensor, valid: Tensor | None, final: Tensor) -> Tensor:
    """Give each row's output at its own last step; the initial state where the row is empty. (B, H)"""
    if valid is None:
        return final
    index = valid.sum(1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return torch.cat([initial[:, None], outputs], dim=1).gather(1, index)[:, 0]
