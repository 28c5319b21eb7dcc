"""Recommenders: which taste decided a rating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.inspection.subject import Subject, as_array
from recollect.inspection.trace import Array, Text
from recollect.models.recommendation import Recommender


class RatingSubject(Subject):
    """One rating as a sum: the mean, the biases of user and item, and p_uk · q_ik of every factor k.

    The inputs are the terms of that sum, so that `saliency` and `left_out` are the terms themselves.
    """

    kind: ClassVar[str] = "recommend"

    def __init__(self, model: Recommender, user: int, item: int, names: tuple[str, str] = ("user", "item")) -> None:
        self.model = model
        device = next(model.parameters()).device
        of_user, of_item = torch.tensor(user, device=device), torch.tensor(item, device=device)
        terms, tokens = [], []
        self.factors: dict[str, Array] = {}
        with torch.no_grad():
            if model.user_bias is not None and model.item_bias is not None:
                terms += [torch.full((1,), model.config.mean, device=device)]
                terms += [model.user_bias(of_user), model.item_bias(of_item)]
                tokens += ["mean", *names]
            if model.tastes is not None and model.features is not None:
                p, q = model.tastes(of_user), model.features(of_item)
                self.factors = {"user.tastes": as_array(p), "item.features": as_array(q)}
                terms.append(p * q)
                tokens += [f"taste {k + 1}" for k in range(len(p))]
            self.inputs = torch.cat(terms)[:, None]
        self.tokens: Sequence[str] = tokens
        self.outcomes, self.at = [names[1]], [len(tokens) - 1]

    def read(self) -> dict[str, Array]:
        """Return the factors of user and item."""
        return {**self.factors, "memory.bytes": np.zeros(len(self.tokens), dtype=np.int64)}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return the sums of the terms, not cut to the range of ratings."""
        return inputs.sum((1, 2))[rows]

    @property
    def why_no_gradient(self) -> Text | None:
        """A rating is a sum, whose gradients exist."""
        return None
