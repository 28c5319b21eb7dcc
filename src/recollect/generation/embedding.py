"""One vector for each text: a model's features of its steps, pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.errors import check_choice
from recollect.core.padding import pad
from recollect.data.text.tokenizer import Ids

Read: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # ids (B, T) and valid (B, T) to features (B, T, D)
WAYS = ("mean", "max", "first", "last")


@dataclass(frozen=True)
class SentencePooling:
    """How a text's features become one vector, as sentence-transformers names it.

    way: the mean or the maximum over its steps, or its first ([CLS]) or last step; normalise: to length 1; most: the
    number of symbols that are read at most.
    """

    way: Literal["mean", "max", "first", "last"] = "mean"
    normalise: bool = True
    most: int | None = None

    def __post_init__(self) -> None:
        check_choice("pooling", self.way, WAYS)

    def pool(self, features: Tensor, valid: Tensor) -> Tensor:
        """Return the vectors (B, D) of features (B, T, D), zeros where a row is empty."""
        count = valid.sum(1)  # (B,)
        if features.shape[1] == 0:
            return features.new_zeros(len(features), features.shape[2])
        if self.way == "mean":
            pooled = features.sum(1) / count.clamp(min=1)[:, None]
        elif self.way == "max":
            pooled = features.masked_fill(~valid[..., None], -torch.inf).amax(1)
        else:
            place = torch.zeros_like(count) if self.way == "first" else (count - 1).clamp(min=0)
            pooled = features[torch.arange(len(features), device=features.device), place]
        pooled = pooled.masked_fill(count[:, None] == 0, 0)
        return F.normalize(pooled, dim=1) if self.normalise else pooled


def embed_rows(
    read: Read, rows: Sequence[Ids], pooling: SentencePooling, *, device: torch.device, batch: int = 32
) -> Tensor:
    """Return the vectors (N, D) of rows of ids; rows of similar length are read together."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    parts = []
    with torch.no_grad():
        for start in range(0, max(len(order), 1), batch):
            some = [torch.from_numpy(rows[i]) for i in order[start : start + batch]]
            ids, valid = (t.to(device) for t in pad(some))
            parts.append(pooling.pool(read(ids, valid), valid).cpu())
    vectors = torch.cat(parts)
    places = torch.tensor(order, dtype=torch.long)
    return torch.empty_like(vectors).index_copy_(0, places, vectors)
