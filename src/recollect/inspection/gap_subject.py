"""Gap fillers: which rows decided an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.inspection.subject import Subject, as_array
from recollect.inspection.trace import Array
from recollect.models.gap_filling import GapFiller


class GapSubject(Subject):
    """A gap filler on one window of scaled values (L, C): outcome o is a missing row's estimate, its channels added.

    A row is left out by hiding its values, as if they had not been observed.
    """

    kind: ClassVar[str] = "fill"

    def __init__(
        self,
        model: GapFiller,
        window: Tensor,
        observed: Tensor,
        stamps: Sequence[str],
        *,
        scale: tuple[Array, Array] | None = None,
        explain: int = 8,
    ) -> None:
        self.model, self.inputs, self.observed = model, window, observed
        none: tuple[Array, Array] = np.zeros(window.shape[1]), np.ones(window.shape[1])
        self.mean, self.deviation = scale or none
        self.tokens = list(stamps)
        self.at = (~observed).all(1).nonzero()[:explain, 0].tolist()
        self.outcomes = [self.tokens[t] for t in self.at]

    def read(self) -> dict[str, Array]:
        """Return what was read, and the estimates of all rows, in the units of the data."""
        estimates = as_array(self.model.estimate(self.inputs[None], self.observed[None])[0])
        values = np.where(self.observed.cpu().numpy(), as_array(self.inputs), np.nan)
        return {
            "values": values * self.deviation + self.mean,
            "filled": estimates * self.deviation + self.mean,
        }

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the window, which is read whole."""
        return {"memory.bytes": np.full(len(self.tokens), self.inputs.nbytes)}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return the estimates of the missing rows, in deviations of the training part."""
        observed = self.observed.repeat(len(inputs), 1, 1)
        if removed is not None:
            observed[torch.arange(len(inputs)), removed] = False
        at = torch.tensor(self.at, device=inputs.device)[outcomes]
        return self.model.estimate(inputs, observed).sum(2)[rows, at]

    def without(self, which: Sequence[int]) -> Tensor:
        """Return a window for each of these rows; what is hidden is zero."""
        windows = self.inputs.repeat(len(which), 1, 1)
        windows[torch.arange(len(which)), torch.tensor(which)] = 0
        return windows
