"""The loss of a masked language model: the hidden symbols, and whether the second text follows the first."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.task import Loss
from recollect.data.text.masked_batches import IGNORED, MaskedBatch


class MaskedSymbols:
    """−Σ log p(symbol | text with hidden symbols) over the predicted places; only these pass through the head.

    With the next-sentence task the mean loss of both tasks is added up, as BERT does.
    """

    def __call__(self, model: Any, batch: MaskedBatch, memory: Memory | None) -> Loss:
        """Return the summed loss and the number of symbols predicted."""
        encoded = model.encode(batch.x, valid=batch.valid, segments=batch.segments)
        logits = as_float(model.predict(at_places(encoded, batch.places)))  # (B, P, V)
        total = F.cross_entropy(logits.flatten(0, 1), batch.y.flatten(), ignore_index=IGNORED, reduction="sum")
        count = (batch.y != IGNORED).sum()
        if batch.follows is not None and batch.balance is not None:
            verdicts = as_float(model.follows(encoded))
            loss = F.cross_entropy(verdicts, batch.follows, ignore_index=IGNORED, reduction="sum")
            total = total + loss * batch.balance[0]
        return Loss(total, count)

    def capturable(self, model: Any, batch: MaskedBatch) -> MaskedBatch | None:
        """Return the batch where it has the shape of most, for a CUDA graph: none of its rows is padded."""
        return batch if batch.valid is None else None


def at_places(encoded: Tensor, places: Tensor) -> Tensor:
    """Return the features (B, P, D) of some places (B, P) of each row."""
    return encoded.gather(1, places[..., None].expand(-1, -1, encoded.shape[2]))


def as_float(logits: Tensor) -> Tensor:
    """Return logits in float32 where they have less."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
