"""One vector for each text: a model's features of its steps, pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.errors import check_choice
from recollect.core.padding import pad
from recollect.core.threads import pace
from recollect.data.text.tokenizer import Ids

Read: TypeAlias = Callable[[Tensor, Tensor], Iterable[Tensor]]  # ids and valid (B, T) to chunks of features (B, t, D)
CHUNK = 512  # steps that are read at once
STEPS = 1 << 16  # of a batch, padding included
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
        return self.pool_chunks([features], valid)

    def pool_chunks(self, features: Iterable[Tensor], valid: Tensor) -> Tensor:
        """Return the vectors (B, D) of features that come in chunks (B, t, D), of which none is kept."""
        count = valid.sum(1)  # (B,)
        start = 0
        pooled: Tensor | None = None
        for chunk in features:
            here = valid[:, start : start + chunk.shape[1]]
            found = self._of_chunk(chunk, here, count - start) if chunk.shape[1] else chunk.new_zeros(chunk.shape[::2])
            pooled = found if pooled is None else self._joined(pooled, found, count > start)
            start += chunk.shape[1]
        assert pooled is not None
        pooled = pooled / count.clamp(min=1)[:, None] if self.way == "mean" else pooled
        pooled = pooled.masked_fill(count[:, None] == 0, 0)
        return F.normalize(pooled, dim=1) if self.normalise else pooled

    def _of_chunk(self, features: Tensor, valid: Tensor, left: Tensor) -> Tensor:
        """Return what a chunk (B, t, D) contributes, where `left` steps (B,) remained at its beginning."""
        if self.way == "mean":
            return features.sum(1)
        if self.way == "max":
            return features.masked_fill(~valid[..., None], -torch.inf).amax(1)
        last = features.shape[1] - 1
        place = torch.zeros_like(left) if self.way == "first" else (left - 1).clamp(0, last)
        return features[torch.arange(len(features), device=features.device), place]

    def _joined(self, before: Tensor, found: Tensor, goes_on: Tensor) -> Tensor:
        """Return the contributions of all chunks so far; `goes_on` (B,): the row has steps in the last one."""
        if self.way == "mean":
            return before + found
        if self.way == "max":
            return torch.maximum(before, found)
        return before if self.way == "first" else torch.where(goes_on[:, None], found, before)


def in_chunks(model: Any) -> Read:
    """Return how a language model's features are computed: `CHUNK` steps at a time, with the memory carried on.

    So a long text takes the memory of a chunk, and nobody's work is done for longer than that without being asked for.
    """

    def read(ids: Tensor, valid: Tensor) -> Iterator[Tensor]:
        memory = None
        for start in range(0, max(ids.shape[1], 1), CHUNK):
            pace()
            here = slice(start, start + CHUNK)
            features, memory = model.features(ids[:, here], memory, valid=valid[:, here])
            yield features

    return read


def at_once(encode: Callable[..., Tensor]) -> Read:
    """Return how the features of a model are computed that reads a text as one."""
    return lambda ids, valid: (encode(ids, valid=valid),)


def embed_rows(
    read: Read, rows: Sequence[Ids], pooling: SentencePooling, *, device: torch.device, batch: int = 32
) -> Tensor:
    """Return the vectors (N, D) of rows of ids; rows of similar length are read together."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    parts = []
    with torch.no_grad():
        for numbers in _batches(order, rows, batch):
            pace()
            ids, valid = (t.to(device) for t in pad([torch.from_numpy(rows[i]) for i in numbers]))
            parts.append(pooling.pool_chunks(read(ids, valid), valid).cpu())
    vectors = torch.cat(parts)
    places = torch.tensor(order, dtype=torch.long)
    return torch.empty_like(vectors).index_copy_(0, places, vectors)


def _batches(order: Sequence[int], rows: Sequence[Ids], batch: int) -> Iterator[Sequence[int]]:
    """Yield the numbers of rows that are read together, the longest first; without rows an empty batch."""
    start = 0
    while start < max(len(order), 1):
        longest = len(rows[order[start]]) if order else 0
        count = max(1, min(batch, STEPS // max(longest, 1)))
        yield order[start : start + count]
        start += count
