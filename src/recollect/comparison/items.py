"""The deciding figure of a trained model by the items of the test part."""

from __future__ import annotations

from typing import Any

from recollect.core.task import ItemScores, Task


def items_of(task: Task, model: Any, dataset: Any) -> ItemScores:
    """Return the figure by items; of a task without `item_scores`, as a single item."""
    score = getattr(task, "item_scores", None)
    if score is not None:
        items: ItemScores = score(model, dataset, "test")
        return items
    return ItemScores([task.measure(model, dataset, "test").value], [1.0])
