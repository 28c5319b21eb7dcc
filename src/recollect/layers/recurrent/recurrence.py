"""What RNN, GRU and LSTM share: weights, the time loop, and torch's fused kernels where they are faster."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.record import is_readable, note
from recollect.core.types import TensorOptions
from recollect.layers.recurrent.flat_weights import lay_together
from recollect.layers.recurrent.torch_arguments import refuse_torch_arguments

if TYPE_CHECKING:
    from recollect.layers.recurrent.torch_bridge import RecurrentStack


@dataclass(frozen=True, eq=False, kw_only=True)
class Hidden(Memory):
    """The memory of an RNN or a GRU: one vector.

    >>> memory = rc.GRU(4, 8).initial_memory(batch_size=2)
    >>> memory.hidden.shape
    torch.Size([2, 8])
    """

    hidden: Tensor  # (B, H)


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenCell(Hidden):
    """The memory of an LSTM: the hidden state and the cell.

    >>> memory = rc.LSTM(4, 8).initial_memory(batch_size=2)
    >>> memory.hidden.shape, memory.cell.shape
    (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    cell: Tensor  # (B, H)


H = TypeVar("H", bound=Hidden)
Method = TypeVar("Method", bound=Callable[..., Any])


def zero_memory(initial_memory: Method) -> Method:
    """Mark an `initial_memory` that is zero everywhere: kernels need not read it."""
    initial_memory.is_zero = True  # type: ignore[attr-defined]
    return initial_memory


class Recurrence(SequenceLayer[H]):
    """A memory of one or two vectors per row, updated at every step with the same weights.

    Weights have torch's layout, with the rows of all gates concatenated: `weight_ih` (G·H, D), `weight_hh` (G·H, H)
    and, with `bias`, two biases (G·H,), one for each matrix product.
    """

    gates: int  # G
    remembers: type[Hidden] = Hidden
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __new__(cls, *given: object, **options: object) -> Any:
        """Raise for arguments of `torch.nn`'s modules by name, before Python reports missing ones."""
        refuse_torch_arguments(cls, given, options)
        return super().__new__(cls)

    def __init__(self, width: int, hidden: int, *, bias: bool = True, **factory: Unpack[TensorOptions]) -> None:
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

    def _apply(self, *given: Any, **options: Any) -> Recurrence[H]:
        super()._apply(*given, **options)  # type: ignore[no-untyped-call]
        lay_together(self)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        lay_together(self)  # the weights of a copy are in separate buffers

    @property
    def begins_with_zeros(self) -> bool:
        """Whether the initial memory is zero everywhere, as marked by `zero_memory`."""
        return getattr(self.initial_memory, "is_zero", False)

    @property
    def has_own_weights(self) -> bool:
        """Whether the weights are parameters of this layer; False where one is computed at every call (weight norm)."""
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
        layers: int,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        **options: Any,
    ) -> RecurrentStack:
        """Return a stack of `layers` such layers, in one or both directions, with dropout between them."""
        return _bridge().build_stack(
            cls, width, hidden, layers, bidirectional=bidirectional, dropout=dropout, **options
        )

    @classmethod
    def from_torch(cls, module: nn.RNNBase) -> Any:
        """Return a copy of a `torch.nn` module: this class for one layer in one direction, else a `RecurrentStack`."""
        return _bridge().from_torch(cls, module)

    def to_torch(self) -> nn.RNNBase:
        """Return a `torch.nn` module with the same weights and outputs (batch first)."""
        return _bridge().to_torch(self)

    def memory_from_torch(self, state: Tensor | tuple[Tensor, Tensor]) -> Memory:
        """Return our memory for torch's h, or (h, c), of shape (1, B, H)."""
        return _bridge().memory_from_torch(self, state)

    def memory_to_torch(self, memory: Memory) -> Tensor | tuple[Tensor, Tensor]:
        """Return torch's h, or (h, c), for our memory."""
        return _bridge().memory_to_torch(self, memory)

    def step(self, from_x: Tensor, memory: H) -> tuple[H, dict[str, Tensor]]:
        """Return the next memory from W_ih x_t + b_ih (B, G·H), and the inner values by name."""
        raise NotImplementedError

    def renew(self, from_x: Tensor, memory: H) -> H:
        """Return the next memory; on a GPU all but the matrix product is one kernel launch, unless it is recorded."""
        if is_readable():
            after, inner = self.step(from_x, memory)
            note(self, **{name: value[:, None] for name, value in inner.items()})
            return after
        may_fuse = from_x.is_cuda and not torch.compiler.is_compiling() and forward_ad._current_level < 0
        found = self.fused_step(from_x, memory) if may_fuse else None
        return self.step(from_x, memory)[0] if found is None else found

    def fused_step(self, from_x: Tensor, memory: H) -> H | None:
        """Return the next memory by torch's fused kernel; None where there is none."""
        return None

    def fused(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H] | None:
        """Read with torch's fused kernel; None where there is none."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H]:
        """Read in a loop over time; rows that have ended keep their memory."""
        from_x = nn.functional.linear(x, self.weight_ih, self.bias_ih)  # (B, T, G·H)
        outputs = [x.new_zeros(len(x), 0, self.hidden)]
        inner = defaultdict(list)
        for t in range(x.shape[1]):
            after, values = self.step(from_x[:, t], memory)
            memory = after if valid is None else hold(after, memory, valid[:, t])
            outputs.append(memory.hidden[:, None])
            for name, value in values.items():
                inner[name].append(value)
        note(self, **{name: torch.stack(values, dim=1) for name, values in inner.items()})
        return torch.cat(outputs, dim=1), memory

    def fast(self, x: Tensor, memory: H, valid: Tensor | None) -> tuple[Tensor, H]:
        """Use torch's fused kernel, where there is one and it is faster."""
        found = self.fused(x, memory, valid) if self.may_fuse(x) else None
        return self.read(x, memory, valid) if found is None else found

    def _check_memory(self, memory: H, x: Tensor) -> None:
        """Check shapes directly where that is enough: the general check first makes a memory, which is slow."""
        is_known = type(memory) is self.remembers and self.begins_with_zeros
        parts = memory.leaves() if is_known else []
        shape = (len(x), self.hidden)
        if not parts or any(t.shape != shape or t.dtype != x.dtype or t.device != x.device for t in parts):
            super()._check_memory(memory, x)

    def may_fuse(self, x: Tensor) -> bool:
        """Return whether torch's fused kernel accepts x, and is faster than the time loop.

        It rejects empty inputs and is slower than a few steps; in bf16 and fp16, also under autocast, the CPU's kernels
        end in an illegal instruction on some processors.
        """
        is_reduced = x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(x.device.type)
        if x.numel() == 0 or (x.device.type == "cpu" and is_reduced):
            return False
        return x.shape[1] >= 4 or torch.is_grad_enabled()

    def _run_fused(self, kernel: Callable[..., Any], x: Tensor, state: Any, weights: list[Tensor]) -> Any:
        """Call one of torch's fused kernels: one layer without dropout in one direction, batch first.

        cuDNN computes gradients only in training mode. Without dropout that changes no result, so it is set by whether
        gradients are enabled, not by the module's mode. Weights in several buffers, e.g. tied ones, are copied by cuDNN
        at every call, with a warning, which is ignored for this call only.
        """
        options = self.bias_ih is not None, 1, 0.0, torch.is_grad_enabled(), False, True
        is_plain = not x.is_cuda or torch.compiler.is_compiling()
        if is_plain or len({w.untyped_storage().data_ptr() for w in weights}) == 1:
            return kernel(x, state, weights, *options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            return kernel(x, state, weights, *options)

    def _weights(self) -> list[Tensor]:
        own: Iterable[Tensor | None] = self._parameters.values()  # faster than getting each by name
        if not self.has_own_weights:
            own = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        return [p for p in own if p is not None]


def _bridge() -> ModuleType:
    # The bridge imports every recurrence, so it can be imported at run time only.
    from recollect.layers.recurrent import torch_bridge

    return torch_bridge


def like_state(product: Tensor, state: Tensor) -> Tensor:
    """Return a matrix product as the fused kernels need it: contiguous, and in the dtype of the state."""
    return product.to(state.dtype).contiguous()


def hold(after: H, before: H, valid: Tensor) -> H:
    """Return the memory `after` a step, and in rows that are not valid the one `before` it."""
    parts = {
        name: torch.where(valid[:, None], new, old)
        for (name, new, _), (_, old, _) in zip(after._parts(), before._parts(), strict=True)
    }
    return type(after)(**parts)


def last_valid(outputs: Tensor, initial: Tensor, valid: Tensor | None, final: Tensor) -> Tensor:
    """Return each row's output at its own last step; the initial state where the row is empty. (B, H)"""
    if valid is None:
        return final
    index = valid.sum(1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return torch.cat([initial[:, None], outputs], dim=1).gather(1, index)[:, 0]


AnyRecurrence: TypeAlias = Recurrence[Any]  # a recurrent layer, whatever its memory
