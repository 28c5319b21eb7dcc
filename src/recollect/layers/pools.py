"""Running pools: at every step one vector of all steps so far, so that a pool can be read in chunks like any layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.layer import M, SequenceLayer
from recollect.core.memory import Memory, Nothing
from recollect.core.record import note


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningSum(Memory):
    """The sum of the steps so far, and their number."""

    total: Tensor  # (B, D)
    length: Tensor  # (B,)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningMax(Memory):
    """The largest value of each feature so far; −∞ before the first step."""

    highest: Tensor  # (B, D)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningContext(Memory):
    """The weighted mean of the steps so far, and log Σ exp of their scores."""

    context: Tensor  # (B, D)
    strength: Tensor  # (B,)


class Pool(SequenceLayer[M]):
    """Base of the pools: y_t pools the steps 1 … t. `final` is y at each row's last step, without the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.width_out = width

    def final(self, x: Tensor, memory: M, valid: Tensor | None) -> tuple[Tensor, M]:
        """Return the pool of all steps (B, D), zero for an empty row, and the memory after; x is zero at padding."""
        raise NotImplementedError


class LastPool(Pool[Nothing]):
    """y_t = x_t: the pool is the last step."""

    growth = "none"

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Nothing:
        """Return the empty memory."""
        return Nothing()

    def read(self, x: Tensor, memory: Nothing, valid: Tensor | None) -> tuple[Tensor, Nothing]:
        """Return the steps themselves."""
        return x, memory

    def final(self, x: Tensor, memory: Nothing, valid: Tensor | None) -> tuple[Tensor, Nothing]:
        """Return each row's last step."""
        if x.shape[1] == 0:
            return x.new_zeros(len(x), x.shape[2]), memory
        if valid is None:
            return x[:, -1], memory
        last = (valid.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
        return x.gather(1, last)[:, 0], memory  # an empty row has zeros at its first step


class MeanPool(Pool[RunningSum]):
    """y_t = (x_1 + … + x_t) / t.

    >>> rc.MeanPool(1)(torch.tensor([[[1.0], [3.0]]]))[0].tolist()
    [[[1.0], [2.0]]]
    """

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> RunningSum:
        """Return a sum of no steps."""
        options = self._like(like)
        length = torch.zeros(batch_size, dtype=torch.long, device=options["device"])
        return RunningSum(total=torch.zeros(batch_size, self.width_out, **options), length=length)

    def read(self, x: Tensor, memory: RunningSum, valid: Tensor | None) -> tuple[Tensor, RunningSum]:
        """Divide the cumulative sum by the number of steps."""
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if valid is None else valid
        sums = memory.total[:, None] + x.cumsum(1)  # (B, T, D)
        counts = memory.length[:, None] + real.long().cumsum(1)  # (B, T)
        after = RunningSum(total=memory.total + x.sum(1), length=memory.length + real.sum(1))
        return sums / counts.clamp(min=1)[..., None], after

    def final(self, x: Tensor, memory: RunningSum, valid: Tensor | None) -> tuple[Tensor, RunningSum]:
        """Return the mean of all steps."""
        count = torch.full_like(memory.length, x.shape[1]) if valid is None else valid.sum(1)
        after = RunningSum(total=memory.total + x.sum(1), length=memory.length + count)
        return after.total / after.length.clamp(min=1)[:, None], after


class MaxPool(Pool[RunningMax]):
    """y_t = max(x_1, …, x_t), for each feature.

    >>> rc.MaxPool(1)(torch.tensor([[[1.0], [3.0], [2.0]]]))[0].flatten().tolist()
    [1.0, 3.0, 3.0]
    """

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> RunningMax:
        """Return −∞ for every feature."""
        return RunningMax(highest=torch.full((batch_size, self.width_out), -torch.inf, **self._like(like)))

    def read(self, x: Tensor, memory: RunningMax, valid: Tensor | None) -> tuple[Tensor, RunningMax]:
        """Return the cumulative maximum."""
        seen = x if valid is None else x.masked_fill(~valid[..., None], -torch.inf)
        joined = torch.cat([memory.highest[:, None], seen], dim=1)
        highest = joined.cummax(1).values  # (B, 1 + T, D)
        return highest[:, 1:], RunningMax(highest=highest[:, -1].clone())

    def final(self, x: Tensor, memory: RunningMax, valid: Tensor | None) -> tuple[Tensor, RunningMax]:
        """Return the maximum over all steps."""
        seen = x if valid is None else x.masked_fill(~valid[..., None], -torch.inf)
        highest = torch.cat([memory.highest[:, None], seen], dim=1).amax(1)
        return highest.masked_fill(highest == -torch.inf, 0), RunningMax(highest=highest)


class AttentionPool(Pool[RunningContext]):
    """y_t = Σ_{s≤t} a_ts x_s,  a_t = softmax_{s≤t} e_s,  e_s = qᵀ tanh(W x_s + b), with a learned q (Lin et al. 2017).

    What is remembered counts as one more step: its value is the weighted mean so far, its score log Σ exp of the
    scores so far. `record` shows the weights of each step.

    >>> pool = rc.AttentionPool(4)
    >>> with rc.record(pool) as inner:
    ...     y, memory = pool(torch.randn(1, 3, 4))
    >>> inner["weights"].shape, round(inner["weights"][0, 2].sum().item(), 4)  # of the third step: three weights
    (torch.Size([1, 3, 3]), 1.0)
    """

    def __init__(self, width: int, hidden: int | None = None) -> None:
        super().__init__(width)
        self.key = nn.Linear(width, hidden or width)
        self.query = nn.Linear(hidden or width, 1, bias=False)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> RunningContext:
        """Return a context of zeros whose score is so low that it has no weight."""
        options = self._like(like)
        least = torch.finfo(options["dtype"]).min / 2
        context = torch.zeros(batch_size, self.width_out, **options)
        return RunningContext(context=context, strength=torch.full((batch_size,), least, **options))

    def scores(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return e (B, T), −∞ at padding."""
        scores = self.query(torch.tanh(self.key(x)))[..., 0]
        return scores if valid is None else scores.masked_fill(~valid, -torch.inf)

    def read(self, x: Tensor, memory: RunningContext, valid: Tensor | None) -> tuple[Tensor, RunningContext]:
        """Attend at every step to all steps so far, and to the memory."""
        steps = x.shape[1]
        scores = torch.cat([memory.strength[:, None], self.scores(x, valid)], dim=1)  # (B, 1 + T)
        values = torch.cat([memory.context[:, None], x], dim=1)
        later = torch.ones(steps, 1 + steps, dtype=torch.bool, device=x.device).triu(2)
        weights = scores[:, None].masked_fill(later, -torch.inf).softmax(-1)  # (B, T, 1 + T)
        note(self, weights=weights[..., 1:])
        return weights @ values, self._after(scores, values)

    def final(self, x: Tensor, memory: RunningContext, valid: Tensor | None) -> tuple[Tensor, RunningContext]:
        """Attend once, to all steps and to the memory."""
        scores = torch.cat([memory.strength[:, None], self.scores(x, valid)], dim=1)
        after = self._after(scores, torch.cat([memory.context[:, None], x], dim=1))
        note(self, weights=scores.softmax(-1)[:, None, 1:])
        return after.context, after

    def _after(self, scores: Tensor, values: Tensor) -> RunningContext:
        context = (scores.softmax(-1)[..., None] * values).sum(1)
        return RunningContext(context=context, strength=scores.logsumexp(-1))


POOLS: dict[str, type[Pool[Any]]] = {  # each with a memory of its own
    "last": LastPool,
    "mean": MeanPool,
    "max": MaxPool,
    "attention": AttentionPool,
}
