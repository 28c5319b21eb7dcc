"""A layer alone, which reads vectors: how its outputs depend on its inputs."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from recollect.core.types import AnyLayer
from recollect.inspection.language_subject import check_length
from recollect.inspection.subject import EXPLAINED, LONGEST, Subject, as_array, bytes_by_step
from recollect.inspection.trace import Array, Text


class LayerSubject(Subject):
    """A layer from vectors (T, D) to vectors: outcome o is the length ‖y_t‖ of its output at step `at[o]`."""

    kind: ClassVar[str] = "layer"

    def __init__(self, layer: AnyLayer, inputs: Tensor, *, explain: int = EXPLAINED, longest: int = LONGEST) -> None:
        check_length(layer, len(inputs), longest)
        self.model = layer
        self.skipped = max(len(inputs) - longest, 0)
        self.before = None
        if self.skipped:
            with torch.no_grad():
                _, self.before = layer(inputs[None, : self.skipped])
        self.inputs = inputs[self.skipped :].detach()
        self.tokens = [str(t) for t in range(self.skipped, len(inputs))]
        self.at = list(range(max(len(self.inputs) - explain, 0), len(self.inputs)))
        self.outcomes = [f"‖y_{t + self.skipped}‖" for t in self.at]
        self.is_causal = layer.streams

    def read(self) -> dict[str, Array]:
        """Read once, and return the vectors read."""
        self.model(self.inputs[None], self.before)
        return {"values": as_array(self.inputs)}

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every step."""
        return {"memory.bytes": bytes_by_step(self.model, self.inputs, self.before)}

    @property
    def why_no_gradient(self) -> Text | None:
        """None: the gradients are those of the vectors, which a layer without weights has too."""
        return None

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return the lengths of the outputs; NaN of the step that is left out."""
        at = torch.tensor(self.at, device=inputs.device)[outcomes]
        gone = torch.zeros_like(at, dtype=torch.bool) if removed is None else removed[rows] == at
        if removed is not None:
            at = at - (removed[rows] < at).long()
        before = None if self.before is None else self.before.select([0] * len(inputs))
        y = self.model(inputs, before)[0][rows, at.clamp(max=inputs.shape[1] - 1)]
        return y.norm(dim=1).masked_fill(gone, torch.nan)
