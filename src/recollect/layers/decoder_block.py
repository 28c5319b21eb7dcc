"""A decoder block: self-attention over the target, cross-attention to the source, feed-forward network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.types import AnyLayer, TensorOptions
from recollect.core.validate import ContractError
from recollect.layers.attention.cross_attention import CrossAttention, Source
from recollect.layers.pointwise import FeedForward, LayerNorm, Pointwise


@dataclass(frozen=True, eq=False, kw_only=True)
class Decoding(Memory):
    """What a decoder block remembers: its mixer's memory of the target, and the source.

    >>> block = rc.DecoderBlock(rc.GRU(8, 8), rc.CrossAttention(8, 2), rc.FeedForward(8))
    >>> memory = block.remember(torch.randn(1, 7, 8))
    >>> type(memory.target).__name__, tuple(memory.source.keys.shape)
    ('Hidden', (1, 7, 2, 4))
    """

    target: Memory
    source: Source


class DecoderBlock(SequenceLayer[Decoding]):
    """A mixer of target steps, attention to a source and a feed-forward network (Vaswani et al. 2017, section 3.1).

    norm="post" (as published): x ← norm(x + mixer(x));  x ← norm(x + cross(x));  x ← norm(x + feed_forward(x))
    norm="pre" (Xiong et al. 2020): x ← x + mixer(norm x);  x ← x + cross(norm x);  x ← x + feed_forward(norm x)

    `remember(source, valid)` returns the first memory.

    >>> block = rc.DecoderBlock(rc.SelfAttention(8, 2), rc.CrossAttention(8, 2), rc.FeedForward(8))
    >>> memory = block.remember(torch.randn(1, 7, 8))
    >>> y, memory = block(torch.randn(1, 3, 8), memory)
    >>> tuple(y.shape), memory.target.length.tolist()
    ((1, 3, 8), [3])
    """

    def __init__(
        self,
        mixer: AnyLayer,
        cross: CrossAttention,
        feed_forward: FeedForward,
        *,
        norm: Literal["pre", "post"] = "post",
        bias: bool = True,
        dropout: float = 0.0,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        widths = [width for part in (mixer, cross, feed_forward) for width in (part.width, part.width_out)]
        if len(set(widths)) != 1:
            raise ContractError("mixer, cross, feed_forward", f"widths {widths}", "equal ones, for the residuals")
        if norm not in ("pre", "post"):
            raise ValueError(f"norm: got {norm!r}, expected 'pre' or 'post'")
        self.width = self.width_out = cross.width_out
        self.growth = "constant" if mixer.growth == "none" else mixer.growth
        self.norm = norm
        self.dropout = dropout
        self.mixer, self.cross, self.feed_forward = mixer, cross, feed_forward
        self.mixer_norm, self.cross_norm, self.feed_forward_norm = (
            LayerNorm(self.width_out, bias=bias, **factory) for _ in range(3)
        )

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks: as the mixer's."""
        return self.mixer.streams

    def remember(self, source: Tensor, valid: Tensor | None = None) -> Decoding:
        """Return the memory of a source (B, S, source_width), with no target steps read."""
        return Decoding(
            target=self.mixer.initial_memory(len(source), like=source), source=self.cross.remember(source, valid)
        )

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Decoding:
        """Raise a ContractError: there is no memory without a source."""
        raise ContractError("memory", "None", "a Decoding: write it first with remember(source, valid)")

    def read(self, x: Tensor, memory: Decoding, valid: Tensor | None) -> tuple[Tensor, Decoding]:
        """Apply the mixer, the cross-attention and the feed-forward network."""
        mixed, target = self.mixer(self._before(self.mixer_norm, x), memory.target, valid=valid)
        x = self._after(self.mixer_norm, x, mixed)
        seen, source = self.cross(self._before(self.cross_norm, x), memory.source, valid=valid)
        x = self._after(self.cross_norm, x, seen)
        fed = self.feed_forward.map(self._before(self.feed_forward_norm, x))
        return self._after(self.feed_forward_norm, x, fed), Decoding(target=target, source=source)

    def _before(self, norm: Pointwise, x: Tensor) -> Tensor:
        return norm.map(x) if self.norm == "pre" else x

    def _after(self, norm: Pointwise, x: Tensor, found: Tensor) -> Tensor:
        x = x + F.dropout(found, self.dropout, self.training)
        return x if self.norm == "pre" else norm.map(x)

    def _check_memory(self, memory: Decoding, x: Tensor) -> None:
        # Mixer and cross-attention check their own.
        if not isinstance(memory, Decoding):
            raise ContractError("memory", type(memory).__name__, "Decoding: it is another layer's memory")
