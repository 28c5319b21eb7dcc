"""The loss of predicting each next symbol, given a memory that is carried or computed from a source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

from recollect.core.memory import Memory
from recollect.core.task import Loss
from recollect.core.types import AnyLayer
from recollect.data.pairs.pair_batches import PairBatch, pad_batch
from recollect.data.text.batches import Batch, reset_rows
from recollect.training.truncation import Truncation

IGNORED = -100  # the target of padding: no symbol's id


@dataclass(frozen=True)
class NextSymbol:
    """Cross-entropy of each next symbol: −Σ_t log p(y_t | y_<t, source).

    Text continues from the carried memory, pairs from the memory of their sources. Padding is masked, never removed: no
    shape depends on a value, so that an update can be captured as a CUDA graph.
    """

    smoothing: float = 0.0  # share of the target's probability that is spread over all symbols
    truncation: Truncation = field(default_factory=Truncation)

    def __call__(self, model: Any, batch: Batch | PairBatch, memory: Memory | None) -> Loss:
        """Return the summed loss, the number of symbols predicted and the memory to carry."""
        if isinstance(batch, PairBatch):
            memory = model.remember(batch.source, batch.source_valid)
        elif memory is not None and batch.is_start is not None:
            memory = reset_rows(memory, model.initial_memory(len(batch.x)), batch.is_start)
        logits, after = self.truncation.read(model, batch.x, memory, batch.valid)
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        y = batch.y if batch.valid is None else batch.y.masked_fill(~batch.valid, IGNORED)
        total = F.cross_entropy(
            logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED, reduction="sum", label_smoothing=self.smoothing
        )
        count = batch.y.numel() if batch.valid is None else batch.valid.sum()
        carried = after.detach().to(next(model.parameters()).dtype) if model.carries else None
        return Loss(total, count, carried)

    def capturable(self, model: AnyLayer, batch: Batch | PairBatch) -> Batch | PairBatch | None:
        """Return the batch in a shape that recurs, for a CUDA graph; None: it cannot be captured.

        Pairs are padded so that few shapes occur. Text is captured where no row is padded or reset.
        """
        if isinstance(batch, PairBatch):
            return pad_batch(batch)
        is_reset = model.carries and batch.is_start is not None and bool(batch.is_start.any())
        return None if batch.valid is not None or is_reset or self.smoothing else replace(batch, is_start=None)
