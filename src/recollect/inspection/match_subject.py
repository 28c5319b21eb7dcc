"""Matchers: which words decided where an answer is found, or how well a text fits a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.inspection.subject import Subject, as_array, bytes_by_step, device_of
from recollect.inspection.trace import Array
from recollect.layers.pointwise import Pointwise
from recollect.models.matching import Matcher


class MatchSubject(Subject):
    """A query, a separator and a text: the one outcome is ln p of the place pointed at, or the score of the pair."""

    kind: ClassVar[str] = "match"

    def __init__(self, model: Matcher, ids: Sequence[int] | Array, tokens: Sequence[str], *, explain: int = 1) -> None:
        self.model = model
        self.inputs = torch.from_numpy(np.array(ids, dtype=np.int64)).to(device_of(model))
        self.tokens = list(tokens)
        with torch.no_grad():
            self.place = int(model.point(self.inputs[None])[0, 0].argmax()) if model.points else len(self.tokens) - 1
        named = self.tokens[self.place] if model.points else "⟨score⟩"
        self.outcomes = [named][:explain]
        self.at = [len(self.tokens) - 1][:explain]

    @property
    def entry(self) -> Pointwise | None:
        """The embedding."""
        return self.model.embedding

    def read(self) -> dict[str, Array]:
        """Return the probabilities of the places."""
        found: dict[str, Array] = {"ids": self.inputs.cpu().numpy()}
        if self.model.points:
            found["pool.weights"] = as_array(self.model.point(self.inputs[None])[0, 0].exp())
        else:
            self.model.rank(self.inputs[None])
        return found

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every symbol."""
        return {"memory.bytes": bytes_by_step(self.model, self.inputs)}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the place, or the score; NaN without the place, or without the separator."""
        if not self.model.points:
            return self.model.rank(inputs)[rows]
        place = torch.full_like(rows, self.place)
        gone = torch.zeros_like(rows, dtype=torch.bool)
        if removed is not None:
            gone = (removed[rows] == place) | (inputs[rows] != self.model.separator).all(1)
            place = place - (removed[rows] < place).long()
        logs = self.model.point(inputs)[:, 0]
        return logs[rows, place.clamp(max=inputs.shape[1] - 1)].masked_fill(gone, torch.nan)
