"""Layers that compute each step independently and have no memory."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Nothing
from recollect.core.record import note
from recollect.core.types import TensorOptions


class Pointwise(SequenceLayer[Nothing]):
    """A function `map` that is applied to each step separately: (B, T, D) to (B, T, D′)."""

    growth = "none"

    def map(self, x: Tensor) -> Tensor:
        """Return the outputs of all steps, each computed from its own input only."""
        raise NotImplementedError

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Nothing:
        """Return the empty memory."""
        return Nothing()

    def read(self, x: Tensor, memory: Nothing, valid: Tensor | None) -> tuple[Tensor, Nothing]:
        """Apply `map`."""
        return self.map(x), memory


class FeedForward(Pointwise):
    """Two linear maps with a nonlinearity between (Vaswani et al. 2017, eq. 2): W_2 φ(W_1 x + b_1) + b_2.

    φ is "relu" (Vaswani), "gelu" (BERT), "gelu_tanh" (GPT-2), or "swiglu" (Shazeer 2020):
    W_2 (silu(W_1 x) ⊙ W_3 x). `hidden` is 4 widths unless given.

    >>> y, memory = rc.FeedForward(4, 16, activation="swiglu")(torch.randn(2, 5, 4))
    >>> y.shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if activation not in ("relu", "gelu", "gelu_tanh", "swiglu"):
            raise ValueError(f"activation: got {activation!r}, expected 'relu', 'gelu', 'gelu_tanh' or 'swiglu'")
        self.width = self.width_out = width
        self.hidden, self.activation, self.dropout = hidden or 4 * width, activation, dropout
        rows = 2 * self.hidden if activation == "swiglu" else self.hidden
        self.up = nn.Linear(width, rows, bias=bias, **factory)
        self.down = nn.Linear(self.hidden, width, bias=bias, **factory)

    def map(self, x: Tensor) -> Tensor:
        """Return W_2 φ(W_1 x + b_1) + b_2."""
        hidden = activate(self.up(x), self.activation)  # (B, T, hidden)
        note(self, hidden=hidden)
        return self.down(F.dropout(hidden, self.dropout) if self.training else hidden)


def activate(x: Tensor, activation: str) -> Tensor:
    """Return φ(x); for "swiglu", whose x is [W_1 x; W_3 x], half as many features."""
    if activation == "relu":
        return x.relu()
    if activation == "swiglu":
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class LayerNorm(Pointwise):
    """(x - mean) / √(variance + ε) · γ + β over the features of a step (Ba et al. 2016).

    >>> y, memory = rc.LayerNorm(2)(torch.tensor([[[1.0, 3.0]]]))
    >>> [round(value, 3) for value in y.flatten().tolist()]
    [-1.0, 1.0]
    """

    kernel = "norm"

    def __init__(self, width: int, *, eps: float = 1e-5, bias: bool = True, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width = self.width_out = width
        self.norm = nn.LayerNorm(width, eps=eps, bias=bias, **factory)

    def map(self, x: Tensor) -> Tensor:
        """Normalise each step."""
        return self.norm(x)


class RMSNorm(Pointwise):
    """x / √(mean of squares + ε) · γ (Zhang & Sennrich 2019).

    >>> y, memory = rc.RMSNorm(2)(torch.tensor([[[3.0, 3.0]]]))
    >>> [round(value, 3) for value in y.flatten().tolist()]
    [1.0, 1.0]
    """

    kernel = "norm"

    def __init__(self, width: int, *, eps: float = 1e-5, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width = self.width_out = width
        self.norm = nn.RMSNorm(width, eps=eps, **factory)

    def map(self, x: Tensor) -> Tensor:
        """Normalise each step."""
        return self.norm(x)


def make_norm(
    kind: str, width: int, *, eps: float = 1e-5, bias: bool = True, **factory: Unpack[TensorOptions]
) -> LayerNorm | RMSNorm:
    """Return the norm of a kind, "layer" or "rms"; the latter has no bias."""
    if kind == "rms":
        return RMSNorm(width, eps=eps, **factory)
    return LayerNorm(width, eps=eps, bias=bias, **factory)


class Linear(Pointwise):
    """W x + b, to another width.

    >>> y, memory = rc.Linear(4, 6)(torch.randn(2, 5, 4))
    >>> y.shape
    torch.Size([2, 5, 6])
    """

    kernel = "linear"

    def __init__(self, width: int, width_out: int, *, bias: bool = True, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width, self.width_out = width, width_out
        self.linear = nn.Linear(width, width_out, bias=bias, **factory)

    def map(self, x: Tensor) -> Tensor:
        """Return W x + b."""
        return self.linear(x)


class Embedding(Pointwise):
    """A vector for each symbol: ids (B, T) to (B, T, D).

    >>> y, memory = rc.Embedding(10, 4)(torch.tensor([[1, 2, 3]]))
    >>> y.shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, vocab_size: int, width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.width, self.width_out, self.vocab_size = None, width, vocab_size
        self.table = nn.Embedding(vocab_size, width, **factory)

    def map(self, x: Tensor) -> Tensor:
        """Return the vectors of the ids."""
        return self.table(x)


class Dropout(Pointwise):
    """Zero features at random while training (Srivastava et al. 2014), between the layers of a stack.

    >>> layer = rc.Dropout(4, rate=0.5).eval()
    >>> layer(torch.ones(1, 1, 4))[0].tolist()  # nothing is dropped in eval mode
    [[[1.0, 1.0, 1.0, 1.0]]]
    """

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"rate: got {rate}, expected 0 ≤ rate < 1")
        self.width = self.width_out = width
        self.rate = rate

    def map(self, x: Tensor) -> Tensor:
        """Return x with features zeroed and the rest rescaled, in training; x in eval mode."""
        return F.dropout(x, self.rate, self.training)
