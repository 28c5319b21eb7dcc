"""What RNN, GRU and LSTM share: weights, the loop over time, and torch's fused kernels where they are faster."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.record import note
from recollect.layers.recurrent.flat_weights import lay_together
from recollect.layers.recurrent.torch_arguments import refuse_torch_arguments

if TYPE_CHECKING:
    from recollect.layers.recurrent.torch_bridge import RecurrentStack


@dataclass(frozen=True, eq=False, kw_only=True)
class Hidden(Memory):
    """A vector: all that an RNN or a GRU remembers.

    >>> memory = rc.GRU(4, 8).initial_memory(batch_size=2)
    >>> memory.hidden.shape
    torch.Size([2, 8])
    """

    hidden: Tensor  # (B, H)


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenCell(Hidden):
    """A vector, and a second one that gates protect: what an LSTM remembers.

    >>> memory = rc.LSTM(4, 8).initial_memory(batch_size=2)
    >>> memory.hidden.shape, memory.cell.shape
    (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    cell: Tensor  # (B, H)


H = TypeVar("H", bound=Hidden)
Method = TypeVar("Method", bound=Callable[..., Any])


def zero_memory(initial_memory: Method) -> Method:
    """Mark an `initial_memory` that is zero throughout: kernels need not be given that."""
    initial_memory.is_zero = True  # type: ignore[attr-defined]
    return initial_memory


class Recurrence(SequenceLayer[H]):
    """One vector per row, updated at every step by the same weights.

    Weights have torch's layout, the gates' rows one below the other: `weight_ih` (G·H, D), `weight_hh` (G·H, H)
    and, with `bias`, two biases (G·H,), one for each product.
    """

    gates: int  # G
    remembers: type[Any] = Hidden
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Refuse the arguments of `torch.nn`'s modules by name, before Python finds others missing."""
        refuse_torch_arguments(cls, given, options)
        return super().__new__(cls)

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
    def begins_with_zeros(self) -> bool:
        """Whether the initial memory is zero throughout, as `zero_memory` says."""
        return getattr(self.initial_memory, "is_zero", False)

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
        """Return the `torch.nn` module that reads the same (batch first)."""
        return _bridge().to_torch(self)

    def memory_from_torch(self, state: Tensor | tuple[Tensor, Tensor]) -> Memory:
        """Return our memory for torch's h, or (h, c), of shape (1, B, H)."""
        return _bridge().memory_from_torch(self, state)

    def memory_to_torch(self, memory: Memory) -> Tensor | tuple[Tensor, Tensor]:
        """Return torch's h, or (h, c), for our memory."""
        return _bridge().memory_to_torch(self, memory)

    def step(self, from_x: Tensor, memory: H) -> tuple[H, dict[str, Tensor]]:
        """Update the memory from W_ih x_t + b_ih (B, G·H); also give the inner values by name."""
        raise NotImplementedError

    def renew(self, from_x: Tensor, memory: H) -> H:
        """Do as `step` where nobody asks for inner values; on a GPU all but the product in one launch."""
        may_fuse = from_x.is_cuda and not torch.compiler.is_compiling() and forward_ad._current_level < 0
        found = self.fused_step(from_x, memory) if may_fuse else None
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
        """Use torch's fused kernel, where there is one and it is faster."""
        found = self.fused(x, memory, valid) if self.may_fuse(x) else None
        return self.read(x, memory, valid) if found is None else found

    def _check_memory(self, memory: H, x: Tensor) -> None:
        """Accept at once what is clearly right: making a memory for comparison takes time."""
        is_known = type(memory) is self.remembers and self.begins_with_zeros
        parts, wanted = memory.leaves() if is_known else [], (len(x), self.hidden)
        if not parts or any(t.shape != wanted or t.dtype != x.dtype or t.device != x.device for t in parts):
            super()._check_memory(memory, x)

    def may_fuse(self, x: Tensor) -> bool:
        """Whether torch's fused kernel takes x, and is faster than steps.

        It rejects empty inputs and costs more than a few steps; in bf16 and fp16, which autocast chooses too, the CPU's
        kernels end in an illegal instruction on some chips.
        """
        is_narrow = x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(x.device.type)
        if x.numel() == 0 or (x.device.type == "cpu" and is_narrow):
            return False
        return x.shape[1] >= 4 or torch.is_grad_enabled()

    def _run_fused(self, kernel: Callable[..., Any], x: Tensor, state: Any, weights: list[Tensor]) -> Any:
        """Call one of torch's fused kernels: one layer without dropout in one direction, batch first.

        cuDNN differentiates only what it read as training. Without dropout that changes no result, so it depends on
        whether gradients are needed, not on the module's mode. Weights in several allocations, as tied ones are,
        it copies at every call, and warns of it: that is ignored here, for this call alone.
        """
        options = self.bias_ih is not None, 1, 0.0, torch.is_grad_enabled(), False, True
        is_plain = not x.is_cuda or torch.compiler.is_compiling()
        if is_plain or len({w.untyped_storage().data_ptr() for w in weights}) == 1:
            return kernel(x, state, weights, *options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            return kernel(x, state, weights, *options)

    def _weights(self) -> list[Tensor]:
        own: Any = self._parameters.values()  # asking for each by name takes longer
        if not self.has_own_weights:
            own = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        return [p for p in own if p is not None]


def _bridge() -> Any:
    # The bridge knows every recurrence, so it can only be met at run time.
    from recollect.layers.recurrent import torch_bridge

    return torch_bridge


def like_state(product: Tensor, state: Tensor) -> Tensor:
    """Return a product as the pointwise kernels read it: contiguous, in the state's dtype, which autocast keeps."""
    return product.to(state.dtype).contiguous()


def hold(renewed: H, before: H, valid: Tensor) -> H:
    """Keep the memory of rows that have ended."""
    parts = {
        name: torch.where(valid[:, None], new, old)
        for (name, new, _), (_, old, _) in zip(renewed._parts(), before._parts(), strict=True)
    }
    return type(renewed)(**parts)


def last_valid(outputs: Tensor, initial: Tensor, valid: Tensor | None, final: Tensor) -> Tensor:
    """Return each row's output at its own last step; the initial state where the row is empty. (B, H)"""
    if valid is None:
        return final
    index = valid.sum(1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return torch.cat([initial[:, None], outputs], dim=1).gather(1, index)[:, 0]
