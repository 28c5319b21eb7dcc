"""Encoders of sources, the poolings of their features into one vector c, and the map to a decoder's first state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from recollect.core.compose import Stack, reverse_rows
from recollect.core.errors import check_choice
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Both, Layers, Nothing
from recollect.core.validate import fill_invalid
from recollect.layers.attention.pooling import SelfAttentive
from recollect.layers.pointwise import Embedding, Linear, Pointwise
from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.torch_bridge import RecurrentStack

CONTEXTS = ("last", "projected", "mean", "max", "attention")


class RecurrentEncoder(SequenceLayer[Layers]):
    """Embedding, then recurrent layers: source ids (B, S), or frames (B, S, E), to features and the final states.

    `backwards` reads every row from its own end (Sutskever et al. 2014, section 3.3); the features are reversed again,
    so that feature s still belongs to symbol s.
    """

    def __init__(
        self, embedding: Embedding | Linear, cells: RecurrentStack, *, backwards: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = embedding.width
        self.width_out = cells.width_out
        if isinstance(embedding, Embedding):
            self.vocab_size = embedding.vocab_size
        self.embedding = embedding
        self.cells = cells
        self.backwards = backwards
        self.dropout = dropout

    @property
    def streams(self) -> bool:
        """Whether a source may be read in chunks: only where it is read from its beginning."""
        return self.cells.streams and not self.backwards

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memory of the recurrent layers."""
        return self.cells.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Read the source."""
        x = reverse_rows(x, valid) if self.backwards else x
        embedded = F.dropout(self.embedding.map(x), self.dropout, self.training)
        y, memory = self.cells(embedded, memory, valid=valid)
        return reverse_rows(y, valid) if self.backwards else y, memory


class InheritedEncoder(SequenceLayer[Layers]):
    """The embedding and the layers of a trained model: source ids (B, S) to features and the final states."""

    def __init__(self, embedding: Pointwise, body: Stack) -> None:
        super().__init__()
        self.width = None
        self.width_out = body.width_out
        self.vocab_size = embedding.vocab_size
        self.growth = body.growth
        self.embedding = embedding
        self.body = body

    @property
    def streams(self) -> bool:
        """Whether a source may be read in chunks: as the trained model reads."""
        return self.body.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memory of the layers."""
        return self.body.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Read the source."""
        return self.body(fill_invalid(self.embedding.map(x), valid), memory, valid=valid)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the layers check it


class Pooling(nn.Module):
    """One vector c (B, D) of a source, computed from its last state or from all of its states.

    "last":       c = h_m
    "projected":  c = q(h_m) = tanh(V h_m + b)               (Cho et al. 2014)
    "mean", "max", "attention":  c = q(h_1 … h_m): over each row's own steps the mean, the maximum of each feature, or
                  Σ_s a_s h_s with a = softmax_s(wᵀ tanh(W h_s + b)) (Lin et al. 2017)

    An empty source has c = 0 before any projection.
    """

    def __init__(self, way: str, width: int) -> None:
        super().__init__()
        check_choice("context", way, CONTEXTS)
        self.way = way
        if way == "projected":
            self.project = nn.Linear(width, width)
        if way == "attention":
            self.attentive = SelfAttentive(width)

    def forward(self, features: Tensor, states: Layers, valid: Tensor) -> Tensor:
        """Return c from the features (B, S, D), zero where not valid, and the encoder's final states."""
        if self.way == "last":
            return top(states).hidden
        if self.way == "projected":
            return self.project(top(states).hidden).tanh()
        if self.way == "mean":
            return features.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
        if self.way == "attention":
            return self.attentive(features, valid)[:, 0]
        # the maximum over each row's own steps; the appended step is 0 where there are none
        floor = torch.where(valid.any(1)[:, None], -torch.inf, 0.0).to(features.dtype)  # (B, 1)
        seen = features.masked_fill(~valid[..., None], -torch.inf)
        return torch.cat([seen, floor[..., None].expand(-1, -1, features.shape[2])], dim=1).amax(1)


class Bridge(nn.Module):
    """Maps one vector to a decoder's first state: tanh(V c + b), with a V for every vector of the state."""

    def __init__(self, width: int, cells: RecurrentStack) -> None:
        super().__init__()
        held = cells.initial_memory(0).tensors().values()
        self.maps = nn.ModuleList(nn.Linear(width, t.shape[1]) for t in held)

    def forward(self, vector: Tensor, cells: RecurrentStack) -> Layers:
        """Return the layers' states for vectors (B, C)."""
        maps = iter(self.maps)
        begun: Layers = tree_map(lambda _: next(maps)(vector).tanh(), cells.initial_memory(len(vector), like=vector))
        return begun


def states_for(cells: RecurrentStack, states: Layers) -> Layers:
    """Return an encoder's states as those of other cells, layer by layer, whatever stands between the layers there."""
    held = (memory for memory in states.layers if isinstance(memory, Hidden | Both))
    return Layers(layers=tuple(Nothing() if isinstance(layer, Pointwise) else next(held) for layer in cells))


def top(states: Layers) -> Hidden:
    """Return the state of a stack's last recurrent layer; of a bidirectional one, the backward half's."""
    last = next(memory for memory in reversed(states.layers) if isinstance(memory, Hidden | Both))
    state = last.backward if isinstance(last, Both) else last
    assert isinstance(state, Hidden)
    return state
