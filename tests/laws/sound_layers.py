"""Small sound layers that the planted faults are made from: each keeps all nine laws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from recollect.core.growing import Growing
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory, grows
from recollect.layers.ngram.recent import Recent
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.recurrence import Hidden

WIDTH = 2


class Plain(SequenceLayer[Hidden]):
    """h_t = tanh(W x_t + b + U h_{t-1}), with a memory of a kind that subclasses may choose."""

    kind: type[Hidden] = Hidden

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = self.width_out = WIDTH
        self.from_x = nn.Linear(WIDTH, WIDTH)
        self.from_h = nn.Linear(WIDTH, WIDTH, bias=False)
        self.double()

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        return self.kind(hidden=torch.zeros(batch_size, WIDTH, **self._like(like)))

    def read(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden]:
        h, outputs = memory.hidden, [x[:, :0]]
        for t in range(x.shape[1]):
            new = torch.tanh(self.from_x(x[:, t]) + self.from_h(h))
            h = new if valid is None else torch.where(valid[:, t, None], new, h)
            outputs.append(h[:, None])
        return torch.cat(outputs, dim=1), replace(memory, hidden=h)


class Shift(SequenceLayer[Recent]):
    """y_t = x_t + 2 x_{t-1}."""

    width = width_out = WIDTH

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Recent:
        last = torch.zeros(batch_size, 1, WIDTH, **self._like(like))
        return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.long))

    def read(self, x: Tensor, memory: Recent, valid: Tensor | None) -> tuple[Tensor, Recent]:
        joined, memory = memory.append(x, valid)
        return x + 2 * joined[:, :-1], memory


@dataclass(frozen=True, eq=False, kw_only=True)
class Gathered(Memory):
    """The sum of the last full mini-batch, that of the unfinished one, and the steps read."""

    full: Tensor  # (B, D)
    begun: Tensor  # (B, D)
    length: Tensor  # (B,)


class MiniBatches(SequenceLayer[Gathered]):
    """y_t = x_t + the sum of the last full mini-batch of three steps."""

    width = width_out = WIDTH

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Gathered:
        full, begun = (torch.zeros(batch_size, WIDTH, **self._like(like)) for _ in range(2))
        return Gathered(full=full, begun=begun, length=torch.zeros(batch_size, dtype=torch.long))

    def read(self, x: Tensor, memory: Gathered, valid: Tensor | None) -> tuple[Tensor, Gathered]:
        full, begun, length, outputs = memory.full, memory.begun, memory.length, [x[:, :0]]
        for t in range(x.shape[1]):
            outputs.append(x[:, t : t + 1] + full[:, None])
            length = length + (1 if valid is None else valid[:, t])
            begun = begun + x[:, t]  # zero at padding
            is_full = ((length % 3 == 0) & (True if valid is None else valid[:, t]))[:, None]
            full = torch.where(is_full, begun, full)
            begun = torch.where(is_full, 0, begun)
        return torch.cat(outputs, dim=1), Gathered(full=full, begun=begun, length=length)


@dataclass(frozen=True, eq=False, kw_only=True)
class Seen(Growing):
    """All steps read."""

    steps: Tensor = grows(1)  # (B, S, D)


class Looking(SequenceLayer[Seen]):
    """Causal dot-product attention over all steps read, or the last `limit` of them; keys and values are x itself."""

    kind: type[Seen] = Seen

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width = self.width_out = WIDTH
        self.limit, self.growth = limit, "linear" if limit is None else "saturates"
        self.query = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Seen:
        steps = torch.zeros(batch_size, 0, WIDTH, **self._like(like))
        return self.kind(steps=steps, length=torch.zeros(batch_size, dtype=torch.long), limit=self.limit, even=True)

    def read(self, x: Tensor, memory: Seen, valid: Tensor | None) -> tuple[Tensor, Seen]:
        lists, offsets, memory = memory.extend({"steps": x}, valid)
        return self.look(x, lists["steps"], self.allowed(x, offsets)), memory

    def allowed(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Say which slots each new step may look at: (B or 1, T, S)."""
        step = torch.arange(x.shape[1])[:, None]
        may = offsets[:, None] <= step
        return may if self.limit is None else may & (offsets[:, None] > step - self.limit)

    def look(self, x: Tensor, steps: Tensor, allowed: Tensor) -> Tensor:
        scores = self.query(x) @ steps.transpose(1, 2)  # (B, T, S)
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ steps


@dataclass(frozen=True, eq=False, kw_only=True)
class Begun(Memory):
    """Whether anything was read."""

    begun: Tensor  # (B,) bool


class FirstOnly(SequenceLayer[Begun]):
    """y_t = x_t at the first step of a sequence, zero ever after."""

    width = width_out = WIDTH

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Begun:
        return Begun(begun=torch.zeros(batch_size, dtype=torch.bool))

    def read(self, x: Tensor, memory: Begun, valid: Tensor | None) -> tuple[Tensor, Begun]:
        is_first = (torch.arange(x.shape[1]) == 0) & ~memory.begun[:, None]  # (B, T)
        any_read = torch.full_like(memory.begun, x.shape[1] > 0) if valid is None else valid.any(1)
        return torch.where(is_first[..., None], x, 0), Begun(begun=memory.begun | any_read)


def linear() -> Linear:
    """Give the smallest layer that remembers nothing."""
    torch.manual_seed(0)
    return Linear(WIDTH, WIDTH, dtype=torch.float64)
