"""The gradient over some batches: forward, loss, backward; on a GPU replayed from captured CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from recollect.core.capture import Captured, Layout, layout_of
from recollect.core.memory import Memory
from recollect.core.task import LossFunction
from recollect.training.state import TrainingPlan, TrainingState

MOST_GRAPHS = 64  # of one training state
CAPTURING = "cuda"  # the type of device on which updates are captured


def gradients(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan) -> float:
    """Return the mean loss over all predictions of the batches, and leave its gradient in the parameters."""
    captured = captured_gradients(state, batches, plan)
    if captured is not None:
        return captured
    return eager_gradients(state, batches, plan, max(sum(batch.count for batch in batches), 1))


def eager_gradients(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan, count: float) -> float:
    """Return the sum of the batches' losses over a count, and leave its gradient in the parameters."""
    state.optimizer.zero_grad(set_to_none=True)
    device = device_of(state)
    total = 0.0
    for batch in batches:
        loss, given = loss_of(state, batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
            found = loss(state.model, tree_map(lambda t: t.to(device), given), state.memory)
        mean = found.total / count
        total += float(mean.detach())
        mean.backward()
        state.memory = found.memory
    return total


def may_capture(state: TrainingState, plan: TrainingPlan) -> bool:
    """Return whether updates are captured where batches allow it: on a GPU, of a loss that can be."""
    is_one = plan.capture and plan.accumulate == 1
    return is_one and hasattr(state.loss, "capturable") and device_of(state).type == CAPTURING


def loss_of(state: TrainingState, batch: Any) -> tuple[LossFunction, Any]:
    """Return the loss to compute and the batch to compute it of: compiled where that is asked for and possible."""
    if state.compiled is None:
        return state.loss, batch
    traceable = getattr(state.loss, "traceable", None)
    given = batch if traceable is None else traceable(state.model, batch)
    return (state.loss, batch) if given is None else (state.compiled, given)


def captured_gradients(state: TrainingState, batches: Sequence[Any], plan: TrainingPlan) -> float | None:
    """Do as `gradients` by replaying a graph; return None where there is no GPU, or no graph for such a batch."""
    function: Any = state.loss
    if len(batches) > 1 or not may_capture(state, plan):
        return None
    batch = function.capturable(state.model, batches[0])
    if batch is None:
        return None
    graph = _graph_for(state, (batch, state.memory), plan, is_varied=batch.shapes_vary)
    if graph is None:
        return None
    loss, state.memory = graph((batch, state.memory))
    return float(loss)


def _graph_for(state: TrainingState, inputs: object, plan: TrainingPlan, *, is_varied: bool) -> Captured | None:
    """Return the graph for the inputs' layout, captured now if it is due; the least recently used one is deleted."""
    layout = layout_of(inputs)
    graphs = state.captured
    if layout not in graphs:
        if not _is_due(state, layout, is_varied):
            return None
        if len(graphs) >= MOST_GRAPHS:
            oldest = next(iter(graphs))
            del graphs[oldest]
            state.seen.discard(oldest)  # else it would replace another at once

        loss = state.loss if state.compiled is None else state.compiled

        def mean_loss(given: tuple[Any, Memory | None]) -> tuple[Tensor, Memory | None]:
            with torch.autocast(device_of(state).type, torch.bfloat16, enabled=plan.precision == "bf16"):
                found = loss(state.model, *given)
            return found.total / found.count, found.memory

        beside = next(iter(graphs.values()), None)
        graphs[layout] = Captured(mean_loss, inputs, state.model.parameters(), beside)
    graphs[layout] = graphs.pop(layout)  # the most recently used is the last
    return graphs[layout]


def _is_due(state: TrainingState, layout: Layout, is_varied: bool) -> bool:
    """Return whether to capture now. Where all batches have one shape: the first batch, and no other.

    Where shapes vary: a shape that occurs for the second time. A capture takes as long as several updates, too long for
    a shape that occurs once.
    """
    if not is_varied:
        return not state.captured
    is_known = layout in state.seen
    state.seen.add(layout)
    return is_known


def device_of(state: TrainingState) -> torch.device:
    """Return the device of the model."""
    return next(state.model.parameters()).device
