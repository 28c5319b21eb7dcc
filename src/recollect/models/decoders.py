"""Decoders whose source is one vector: as the first state only, or at every step as well.

The vector does not depend on the decoder's state, so that all target steps are computed by the fused kernels at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.layer import M, SequenceLayer
from recollect.core.memory import Fixed, Layers, Memory
from recollect.core.record import note
from recollect.core.validate import ContractError
from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.torch_bridge import RecurrentStack
from recollect.models.encoders import Bridge, Pooling, states_for


@dataclass(frozen=True, eq=False, kw_only=True)
class Summary(Fixed):
    """A source in one vector."""

    context: Tensor  # (B, C)


@dataclass(frozen=True, eq=False, kw_only=True)
class Summarised(Memory):
    """The memory of a decoder with one context for all steps: its state, and the source's summary."""

    state: Layers
    source: Summary


class Decoder(SequenceLayer[M]):
    """Target ids (B, T) to logits (B, T, V), from the memory of a source that `begin` returns."""

    def __init__(self, embedding: Embedding, width_in: int, dropout: float) -> None:
        super().__init__()
        self.width = None
        self.width_out = self.vocab_size = embedding.vocab_size
        self.embedding = embedding
        self.dropout = dropout
        self.out = nn.Linear(width_in, embedding.vocab_size)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> M:
        """Return the first memory, from an encoder's features (B, S, D), its final states, and which steps are real."""
        raise NotImplementedError

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> M:
        """Raise a ContractError: there is no memory without a source."""
        raise ContractError("memory", "None", "the memory of a source: model.remember(source, valid)")

    def features(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Return the inputs of the map to the vocabulary (B, T, D), and the memory after."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Return the logits of the symbol after each target id."""
        hidden, memory = self.features(x, memory, valid)
        return self.out(hidden), memory

    def embed(self, ids: Tensor) -> Tensor:
        """Return the ids' vectors (B, T, E), with dropout."""
        return self._drop(self.embedding.map(ids))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def _check_kind(self, memory: Memory, kind: type[Memory]) -> None:
        if not isinstance(memory, kind):
            raise ContractError("memory", type(memory).__name__, f"{kind.__name__}: it is another model's memory")


class StateDecoder(Decoder[Layers]):
    """The source is the first state, and enters nowhere else (Sutskever et al. 2014, section 2).

    h_0 = v, the encoder's last states, layer by layer;  h_t = cell(e(y_{t-1}), h_{t-1});  logits_t = W h_t + b
    """

    def __init__(self, embedding: Embedding, cells: RecurrentStack, *, dropout: float = 0.0) -> None:
        super().__init__(embedding, cells.width_out, dropout)
        self.cells = cells

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Layers:
        """Return the encoder's last states."""
        return states_for(self.cells, states)

    def features(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Continue from the state."""
        hidden, memory = self.cells(self.embed(x), memory, valid=valid)
        return self._drop(hidden), memory

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the cells check it


class Readout(nn.Module):
    """Maps several vectors to one of `width`: t = tanh(O [a; b; …] + b_o), or with maxout (Goodfellow et al. 2013)

    t_j = max(u_{2j}, u_{2j+1}),  u = O [a; b; …] + b_o.
    """

    def __init__(self, width_in: int, width: int, *, maxout: bool = False) -> None:
        super().__init__()
        self.maxout = maxout
        self.map = nn.Linear(width_in, 2 * width if maxout else width)

    def forward(self, *vectors: Tensor) -> Tensor:
        """Concatenate the vectors (B, T, …) and apply the map."""
        joined = self.map(torch.cat(vectors, dim=2))
        return joined.unflatten(2, (-1, 2)).amax(3) if self.maxout else joined.tanh()


class ContextDecoder(Decoder[Summarised]):
    """The source's summary c at every step, in the first state and in the output (Cho et al. 2014, appendix A).

    h_0 = tanh(V′ c);  h_t = cell([e(y_{t-1}); c], h_{t-1});  logits_t = W readout(h_t, e(y_{t-1}), c) + b

    c is the result of a `Pooling`. Where we differ: biases everywhere, and tanh in the readout unless `maxout` is on.
    """

    def __init__(
        self, embedding: Embedding, cells: RecurrentStack, pooling: Pooling, *, maxout: bool, dropout: float = 0.0
    ) -> None:
        width = embedding.width_out
        context = cells.width_out
        super().__init__(embedding, width, dropout)
        self.cells = cells
        self.pooling = pooling
        self.bridge = Bridge(context, cells)
        self.readout = Readout(cells.width_out + width + context, width, maxout=maxout)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Summarised:
        """Return the first memory: the source's summary, and a state computed from it."""
        context = self.pooling(features, states, valid)
        return Summarised(state=self.bridge(context, self.cells), source=Summary(context=context))

    def features(self, x: Tensor, memory: Summarised, valid: Tensor | None) -> tuple[Tensor, Summarised]:
        """Continue from the state; the context is concatenated to every symbol."""
        embedded = self.embed(x)
        context = memory.source.context[:, None].expand(-1, x.shape[1], -1)
        hidden, state = self.cells(torch.cat([embedded, context], dim=2), memory.state, valid=valid)
        note(self, context=context)
        return self._drop(self.readout(hidden, embedded, context)), Summarised(state=state, source=memory.source)

    def _check_memory(self, memory: Summarised, x: Tensor) -> None:
        self._check_kind(memory, Summarised)  # the cells check the state
        if memory.source.context.shape != (len(x), self.cells.width_out):
            got = f"shape {tuple(memory.source.context.shape)}"
            raise ContractError("memory.source.context", got, f"{(len(x), self.cells.width_out)}")
