"""Attention to the output of an encoder: keys and values are computed once and do not change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Fixed, grows
from recollect.core.types import TensorOptions
from recollect.core.validate import ContractError, check_input, check_memory, check_valid, fill_invalid
from recollect.layers.attention.self_attention import View, look, look_fast


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Fixed):
    """The keys and values of a source sequence, and which of them are real.

    >>> source = rc.CrossAttention(4, 2).remember(torch.randn(1, 7, 4))
    >>> tuple(source.keys.shape), source.valid.sum().item()
    ((1, 7, 2, 2), 7)
    """

    keys: Tensor = grows(1)  # (B, S, N, H), zero where not valid
    values: Tensor = grows(1)  # (B, S, N, H), zero where not valid
    valid: Tensor = grows(1)  # (B, S)


class CrossAttention(SequenceLayer[Source]):
    """Multi-head attention from each step to a source (Vaswani et al. 2017, section 3.2.3).

    q = W_q x;  k = W_k s, v = W_v s for the source's steps s;  a = softmax(q · k / √H);  y = W_o Σ a v

    The memory is the source: `memory = layer.remember(source, valid)`. It never changes, and `reorder` returns it
    unchanged. A row whose source is empty gets W_o 0.

    >>> layer = rc.CrossAttention(4, 2, source_width=6)
    >>> source = layer.remember(torch.randn(1, 7, 6))
    >>> y, memory = layer(torch.randn(1, 3, 4), source)
    >>> tuple(y.shape), memory is source
    ((1, 3, 4), True)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        source_width: int | None = None,
        scaled: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of the width {width}")
        self.width = self.width_out = width
        self.source_width = source_width or width
        self.heads = heads
        self.head_width = width // heads
        self.scale = 1 / math.sqrt(self.head_width) if scaled else 1.0
        self.dropout = dropout
        self.query = nn.Linear(width, width, bias=bias, **factory)
        self.key_value = nn.Linear(self.source_width, 2 * width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def remember(self, source: Tensor, valid: Tensor | None = None) -> Source:
        """Return the memory of a source (B, S, source_width)."""
        check_input(source, self.source_width, *self._home())
        if valid is None:
            valid = torch.ones(source.shape[:2], dtype=torch.bool, device=source.device)
        check_valid(valid, source)
        both = self.key_value(fill_invalid(source, valid)).unflatten(2, (2, self.heads, self.head_width))
        keys, values = fill_invalid(both, valid).unbind(2)  # (B, S, N, H) each
        return Source(keys=keys.contiguous(), values=values.contiguous(), valid=valid)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Source:
        """Raise a ContractError: there is no memory without a source."""
        raise ContractError("memory", "None", "a Source: write it first with remember(source, valid)")

    def read(self, x: Tensor, memory: Source, valid: Tensor | None) -> tuple[Tensor, Source]:
        """Attend to the source, in the readable form."""
        context = look(self, self._queries(x), self._view(memory, x), self.scale, self.dropout)
        return self.out(context.flatten(2)), memory

    def fast(self, x: Tensor, memory: Source, valid: Tensor | None) -> tuple[Tensor, Source]:
        """Attend to the source with the fused kernel; empty rows are unmasked for it and zeroed afterwards."""
        view = self._view(memory, x)
        assert view.allowed is not None
        is_empty = ~memory.valid.any(1)[:, None, None]  # (B, 1, 1)
        view = View(view.keys, view.values, view.allowed | is_empty)
        context = look_fast(self, self._queries(x), view, self.scale, self.dropout, is_causal=False)
        return self.out(context.flatten(2).masked_fill(is_empty, 0)), memory

    def _queries(self, x: Tensor) -> Tensor:
        return self.query(x).unflatten(2, (self.heads, self.head_width))

    def _view(self, memory: Source, x: Tensor) -> View:
        return View(memory.keys, memory.values, memory.valid[:, None].expand(-1, x.shape[1], -1))

    def _check_memory(self, memory: Source, x: Tensor) -> None:
        keys = x.new_zeros(0, 0, self.heads, self.head_width)
        template = Source(keys=keys, values=keys, valid=x.new_zeros(0, 0, dtype=torch.bool))
        check_memory(memory, template, len(x))
