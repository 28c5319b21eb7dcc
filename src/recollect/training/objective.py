"""The loss of predicting each next symbol, given a memory that is carried or computed from a source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.task import Loss
from recollect.core.types import AnyLayer
from recollect.data.pairs.pair_batches import PairBatch, pad_batch
from recollect.data.text.batches import Batch, reset_rows
from recollect.training.head_loss import head_loss, is_selected
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
    is_carried: bool = True  # whether the next batch continues the text, where the memory is bounded

    def __call__(self, model: Any, batch: Batch | PairBatch, memory: Memory | None) -> Loss:
        """Return the summed loss, the number of symbols predicted and the memory to carry."""
        if isinstance(batch, PairBatch):
            memory = model.remember(batch.source, batch.source_valid)
        elif memory is not None and batch.is_start is not None:
            memory = reset_rows(memory, model.initial_memory(len(batch.x)), batch.is_start)
        y = batch.y if batch.valid is None else batch.y.masked_fill(~batch.valid, IGNORED)
        total, after = self._read(model, batch, y.flatten(), memory)
        count = batch.y.numel() if batch.valid is None else batch.valid.sum()
        carried = after.detach().to(next(model.parameters()).dtype) if model.carries and self.is_carried else None
        return Loss(total, count, carried)

    def _read(self, model: Any, batch: Batch | PairBatch, y: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Return the summed loss () of targets (N), and the memory after the batch."""
        if self.truncation.is_in_one_call and is_selected(model, batch.x):
            features, after = model.features(batch.x, memory, valid=batch.valid)
            loss = head_loss(model.head, features.flatten(0, 1), y, ignored=IGNORED, smoothing=self.smoothing)
            return loss, after
        logits, after = self.truncation.read(model, batch.x, memory, batch.valid)
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        settings: dict[str, Any] = {"ignore_index": IGNORED, "label_smoothing": self.smoothing}
        return F.cross_entropy(logits.flatten(0, 1), y, reduction="sum", **settings), after

    def capturable(self, model: AnyLayer, batch: Batch | PairBatch) -> Batch | PairBatch | None:
        """Return the batch in a shape that recurs, for a CUDA graph; None: it cannot be captured.

        Pairs are padded so that few shapes occur. Text is captured where no row is padded or reset.
        """
        if not isinstance(batch, PairBatch) and (batch.valid is not None or self.smoothing):
            return None
        return self.traceable(model, batch)

    def traceable(self, model: AnyLayer, batch: Batch | PairBatch) -> Batch | PairBatch | None:
        """Return the batch in a shape that recurs, for torch.compile; None: rows are reset, which depends on values."""
        if isinstance(batch, PairBatch):
            return pad_batch(batch)
        is_reset = model.carries and self.is_carried and batch.is_start is not None and bool(batch.is_start.any())
        return None if is_reset else replace(batch, is_start=None)
