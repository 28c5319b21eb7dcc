"""The gradient of a batch whose rows several processes share, each with a copy of the model.

    ∇ℓ = (1/N) Σ_r ∇ (N Σ_i ℓ_i / M),  i over the rows of process r, M the predictions of the whole batch

DistributedDataParallel averages gradients over the N processes while it still back-propagates. The loss of each is
divided by the predictions of all, so that rows of unequal length count as in one process. Of several batches to an
update only the last is synchronised. Updates that are replayed from CUDA graphs are averaged after the replay. A
sharded model is read in the same way; FSDP averages its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from recollect.core.errors import is_own
from recollect.core.memory import Memory
from recollect.core.task import LossFunction
from recollect.core.types import JsonObject
from recollect.training.network import Host
from recollect.training.sharding import in_lockstep
from recollect.training.state import TrainingPlan, TrainingState
from recollect.training.step import captured_gradients, device_of, eager_gradients, loss_of, may_capture


def summed_loss(model: Any, loss: LossFunction, batch: Any, memory: Memory | None) -> tuple[Tensor, Memory | None]:
    """Return the summed loss and the memory after the batch, in a form that DDP and FSDP look through."""
    found = loss(model, batch, memory)
    return found.total, found.memory


def shared_gradients(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan) -> float:
    """Return the mean loss over all predictions of the batches, and leave its gradient in every process."""
    state.workers.reseed(state.progress.step)
    count = sum(batch.count for batch in batches)
    if state.network is not None:
        return state.workers.mean(_overlapped(state, batches, plan, count))
    total = _apart(state, batches, plan, count)
    if not may_capture(state, plan):
        state.network = replicated(state)
    return state.workers.mean(total)


def _apart(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan, count: int) -> float:
    """Compute the gradient of this process's rows as in a single one, by a graph where it can; then average.

    A graph cannot wait for other processes. Without one the arithmetic is that of `_overlapped`, to the last bit: after
    a restart the first update is computed here, which an undisturbed training computes there.
    """
    workers = state.workers
    rows = [batch for batch, is_idle in map(workers.own, batches) if not is_idle]
    weight = workers.size * sum(batch.count for batch in rows) / count
    found = captured_gradients(state, rows, plan)
    if found is None:
        weight = 1.0
        found = eager_gradients(state, rows, plan, count / workers.size)
    workers.average_gradients(state.model.parameters(), weight)
    return weight * found


def _overlapped(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan, count: int) -> float:
    """Compute the gradient of this process's rows, averaged during back-propagation."""
    state.optimizer.zero_grad(set_to_none=True)
    device = device_of(state)
    total = 0.0
    for place, batch in enumerate(batches):
        rows, is_idle = state.workers.own(batch)
        if is_idle:  # it has to take part: it reads a row of another's, which counts nothing
            rows = tree_map(lambda t: t[:1], batch)
        loss, given = loss_of(state, rows)
        with _synchronised(state.network, is_last=place == len(batches) - 1):
            with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
                summed, memory = state.network(summed_loss, loss, tree_map(lambda t: t.to(device), given), state.memory)
            mean = summed * 0.0 if is_idle else summed / (count / state.workers.size)
            total += float(mean.detach())
            mean.backward()
        state.memory = None if memory is None else memory.detach()
    return total


def seen_by_all(state: TrainingState, work: Callable[[Any], JsonObject]) -> JsonObject:
    """Return in every process what some work makes of the model that is measured, in the first one.

    A sharded model is read by all, each doing the same work.
    """
    if not state.is_sharded:
        return state.workers.told(lambda: work(state.result))
    made = in_lockstep(state.network, work)
    return state.workers.told(lambda: made)


def replicated(state: TrainingState) -> DistributedDataParallel:
    """Return model and loss as DDP, after an update that has shown which weights have a gradient.

    Where some have none, or only at times, DDP searches for them in every update: where a memory begins from weights
    (TTT), and in code of one's own, which may branch.
    """
    model = state.model
    is_partly_used = any(p.requires_grad and p.grad is None for p in model.parameters())
    begins_from_weights = state.memory is not None and any(t.requires_grad for t in model.initial_memory(1).leaves())
    is_branching = is_own(getattr(getattr(model, "config", None), "family", "")) or state.compiled is not None
    return DistributedDataParallel(
        Host(model),
        find_unused_parameters=is_partly_used or begins_from_weights or is_branching,
        gradient_as_bucket_view=True,
    )


def _synchronised(network: Any, *, is_last: bool) -> AbstractContextManager[Any]:
    if not isinstance(network, DistributedDataParallel):
        network.set_requires_gradient_sync(is_last)
    elif not is_last:
        waiting: AbstractContextManager[Any] = network.no_sync()
        return waiting
    return nullcontext()
