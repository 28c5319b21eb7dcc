"""Recurrent decoders that attend to the whole source at every step: Bahdanau's and Luong's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from recollect.core.memory import Layers, Memory
from recollect.core.validate import check_memory, compute_dtype
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.cross_attention import Source
from recollect.layers.pointwise import Embedding, Pointwise
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.layers.recurrent.torch_bridge import RecurrentStack
from recollect.models.decoders import Decoder, Readout
from recollect.models.encoders import Bridge, states_for, top


@dataclass(frozen=True, eq=False, kw_only=True)
class Attending(Memory):
    """The memory of a recurrent decoder with attention."""

    state: Layers
    context: Tensor  # (B, C) of the last step: Bahdanau's c_t, Luong's h̃_t
    length: Tensor  # (B,) target steps read, where local alignments are centred
    source: Source


class AttentiveDecoder(Decoder[Attending]):
    """The base of both: the memory, and the step of a stack whose lowest layer reads a symbol and a context."""

    def __init__(
        self, embedding: Embedding, cells: RecurrentStack, attend: Attend, width_in: int, context: int, dropout: float
    ) -> None:
        super().__init__(embedding, width_in, dropout)
        self.cells = cells
        self.attend = attend
        self.context = context

    def start(self, features: Tensor, state: Layers, valid: Tensor) -> Attending:
        """Return the first memory: a state, the source's keys and values, and a context of zero."""
        context = features.new_zeros(len(features), self.context)
        length = torch.zeros(len(features), dtype=torch.long, device=features.device)
        return Attending(state=state, context=context, length=length, source=self.attend.remember(features, valid))

    def lowest_products(self, embedded: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Split the lowest layer's matmul: return W_e e(y) + b of each step (B, G·H), and W_c, for the contexts."""
        first = self.cells[0]
        assert isinstance(first, Recurrence)
        # The weight and the matmuls are split once for all steps: the gradient of each split is as large as the whole.
        # Autocast would cast the split weight again at every step.
        weight = first.weight_ih.to(compute_dtype(embedded))
        from_symbols, from_context = weight.tensor_split([embedded.shape[2]], dim=1)
        return F.linear(embedded, from_symbols, first.bias_ih).unbind(1), from_context

    def step(self, from_x: Tensor, state: Layers) -> Layers:
        """Compute the states of all layers after one step, from W_ih x + b_ih of the lowest layer (B, G·H)."""
        after: list[Memory] = []
        for layer, own in zip(self.cells, state.layers, strict=True):
            if isinstance(layer, Pointwise):
                from_x = layer.map(from_x)
                after.append(own)
                continue
            if after:
                from_x = F.linear(from_x, layer.weight_ih, layer.bias_ih)
            state_after = layer.renew(from_x, own)
            from_x = state_after.hidden
            after.append(state_after)
        return Layers(layers=tuple(after))

    def finish(self, memory: Attending, steps: Sequence[tuple[Layers, Tensor]], valid: Tensor | None) -> Attending:
        """Return the memory after each row's valid steps, given (state, context) before the first and after each."""
        if valid is None:
            state, context = steps[-1]
            length = memory.length + len(steps) - 1
        else:
            count = valid.sum(1)
            rows = torch.arange(len(count), device=count.device)
            state, context = tree_map(lambda *after: torch.stack(after)[count, rows], *steps)
            length = memory.length + count
        return Attending(state=state, context=context, length=length, source=memory.source)

    def _check_memory(self, memory: Attending, x: Tensor) -> None:
        self._check_kind(memory, Attending)
        state = self.cells.initial_memory(0, like=memory.context)
        options = self._like(memory.context)
        context = torch.zeros(0, self.context, **options)
        length = torch.zeros(0, dtype=torch.long, device=options["device"])
        # Attend checks the source's widths.
        check_memory(memory, Attending(state=state, context=context, length=length, source=memory.source), len(x))


class BahdanauDecoder(AttentiveDecoder):
    """Attend with the state before the step, then step (Bahdanau et al. 2015, section 3.1 and appendix A).

    s_0 = tanh(W_s ←h_1);  c_t = Σ_s a_ts h_s,  a_t = align(score(s_{t-1}, h_s))
    s_t = cell([e(y_{t-1}); c_t], s_{t-1});  logits_t = W readout(s_t, e(y_{t-1}), c_t) + b

    ←h_1 is the last state of the encoder's backward half. Differs from the paper: the output reads s_t (the paper's
    equation 4; its appendix has s_{t-1}), there are biases everywhere, and the readout is tanh unless `maxout` is on.
    With several layers the state of the top one is the query.
    """

    def __init__(
        self, embedding: Embedding, cells: RecurrentStack, attend: Attend, *, maxout: bool, dropout: float = 0.0
    ) -> None:
        width = embedding.width_out
        context = attend.width_out
        super().__init__(embedding, cells, attend, width, context, dropout)
        self.bridge = Bridge(context // 2, cells)
        self.readout = Readout(cells.width_out + width + context, width, maxout=maxout)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Attending:
        """Return the first memory, from the backward half's last state, which has just read the first symbol."""
        return self.start(features, self.bridge(top(states).hidden, self.cells), valid)

    def features(self, x: Tensor, memory: Attending, valid: Tensor | None) -> tuple[Tensor, Attending]:
        """Attend and step, symbol by symbol; what depends on no state is computed for all symbols at once."""
        embedded = self.embed(x)
        from_symbols, weight = self.lowest_products(embedded)
        steps = [(memory.state, memory.context)]
        for t, from_symbol in enumerate(from_symbols):
            state, _ = steps[-1]
            context = self.attend(top(state).hidden[:, None], memory.source, memory.length + t).squeeze(1)
            steps.append((self.step(from_symbol + F.linear(context, weight), state), context))
        hidden = _over_time(top(state).hidden for state, _ in steps)
        contexts = _over_time(context for _, context in steps)
        return self._drop(self.readout(hidden, embedded, contexts)), self.finish(memory, steps, valid)


class LuongDecoder(AttentiveDecoder):
    """Step, then attend with the new state (Luong et al. 2015, sections 3.1 to 3.3).

    h_0 = the encoder's last states;  h_t = cell([e(y_{t-1}); h̃_{t-1}], h_{t-1});  c_t = Σ_s a_ts h̄_s,
    a_t = align(score(h_t, h̄_s));  h̃_t = tanh(W_c [c_t; h_t]);  logits_t = W h̃_t + b

    h̃_0 = 0. Without `feeding` the step does not read h̃_{t-1}, and all steps are computed by the fused kernels at once.
    """

    def __init__(
        self, embedding: Embedding, cells: RecurrentStack, attend: Attend, *, feeding: bool, dropout: float = 0.0
    ) -> None:
        super().__init__(embedding, cells, attend, cells.width_out, cells.width_out, dropout)
        self.feeding = feeding
        self.combine = nn.Linear(attend.width_out + cells.width_out, cells.width_out, bias=False)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Attending:
        """Return the first memory, from the encoder's last states."""
        return self.start(features, states_for(self.cells, states), valid)

    def features(self, x: Tensor, memory: Attending, valid: Tensor | None) -> tuple[Tensor, Attending]:
        """Step and attend; with input feeding, symbol by symbol."""
        if not self.feeding:
            return self._features_without_feeding(x, memory, valid)
        from_symbols, weight = self.lowest_products(self.embed(x))
        steps = [(memory.state, memory.context)]
        for t, from_symbol in enumerate(from_symbols):
            before, fed = steps[-1]
            state = self.step(from_symbol + F.linear(fed, weight), before)
            steps.append((state, self._attended(top(state).hidden[:, None], memory, t).squeeze(1)))
        return self._drop(_over_time(attended for _, attended in steps)), self.finish(memory, steps, valid)

    def _features_without_feeding(self, x: Tensor, memory: Attending, valid: Tensor | None) -> tuple[Tensor, Attending]:
        hidden, state = self.cells(self.embed(x), memory.state, valid=valid)
        attended = self._attended(hidden, memory, 0)  # (B, T, H)
        count = torch.full_like(memory.length, x.shape[1]) if valid is None else valid.sum(1)
        every = torch.cat([memory.context[:, None], attended], dim=1)
        last = every[torch.arange(len(every), device=every.device), count]
        after = Attending(state=state, context=last, length=memory.length + count, source=memory.source)
        return self._drop(attended), after

    def _attended(self, hidden: Tensor, memory: Attending, t: int) -> Tensor:
        """Return h̃ for states (B, T, H), of which the first is at step t of this call."""
        context = self.attend(hidden, memory.source, memory.length + t)
        return self.combine(torch.cat([context, hidden], dim=2)).tanh()


def _over_time(values: Iterable[Tensor]) -> Tensor:
    """Stack the values after each step (B, T, …), without the one before the first."""
    return torch.stack(list(values), dim=1)[:, 1:]
