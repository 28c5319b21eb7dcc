"""A block: a layer that mixes steps, then a feed-forward network, each with a residual connection and a norm."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Unpack

from recollect.core.layer import M, SequenceLayer
from recollect.core.types import TensorOptions
from recollect.core.validate import ContractError
from recollect.layers.pointwise import FeedForward, Pointwise, make_norm


class Block(SequenceLayer[M]):
    """A Transformer block with any layer as its mixer.

    norm="pre" (GPT-2):               x ← x + mixer(norm x);  x ← x + feed_forward(norm x)
    norm="post" (Vaswani et al. 2017): x ← norm(x + mixer(x));  x ← norm(x + feed_forward(x))

    Its memory is the mixer's. `kind` selects the norm: "layer" or "rms"; `eps` is its ε.

    >>> block = rc.Block(rc.SelfAttention(8, 2), rc.FeedForward(8, 16))
    >>> y, memory = block(torch.randn(2, 5, 8))
    >>> tuple(y.shape), type(memory).__name__
    ((2, 5, 8), 'KeysValues')
    """

    kernel = "block"

    def __init__(
        self,
        mixer: SequenceLayer[M],
        feed_forward: FeedForward | None = None,
        *,
        norm: Literal["pre", "post"] = "pre",
        kind: Literal["layer", "rms"] = "layer",
        eps: float = 1e-5,
        bias: bool = True,
        dropout: float = 0.0,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if mixer.width is None or mixer.width != mixer.width_out:
            raise ContractError("mixer", f"width {mixer.width} to {mixer.width_out}", "equal widths, for the residual")
        if norm not in ("pre", "post") or kind not in ("layer", "rms"):
            raise ValueError(f"norm, kind: got {norm!r}, {kind!r}, expected 'pre' or 'post', 'layer' or 'rms'")
        self.width = self.width_out = mixer.width
        self.growth, self.norm, self.dropout = mixer.growth, norm, dropout
        self.mixer = mixer
        self.feed_forward = feed_forward or FeedForward(mixer.width, bias=bias, **factory)
        self.mixer_norm: Pointwise = make_norm(kind, mixer.width, eps=eps, bias=bias, **factory)
        self.feed_forward_norm: Pointwise = make_norm(kind, mixer.width, eps=eps, bias=bias, **factory)

    @property
    def streams(self) -> bool:
        """Whether the mixer streams."""
        return self.mixer.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """Return the mixer's initial memory."""
        return self.mixer.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Apply the mixer, then the feed-forward network."""
        if self.norm == "pre":
            mixed, memory = self.mixer(self.mixer_norm.map(x), memory, valid=valid)
            x = x + self._drop(mixed)
            return x + self._drop(self.feed_forward.map(self.feed_forward_norm.map(x))), memory
        mixed, memory = self.mixer(x, memory, valid=valid)
        x = self.mixer_norm.map(x + self._drop(mixed))
        return self.feed_forward_norm.map(x + self._drop(self.feed_forward.map(x))), memory

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training else x

    def _check_memory(self, memory: M, x: Tensor) -> None:
        pass  # the mixer checks it
