"""The likelihood of hidden symbols under a masked language model, by rows; and that of models that see no context."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recollect.core.task import Measure
from recollect.core.threads import pace
from recollect.data.text.masked_batches import IGNORED, MaskedBatch

MASKED_NATS = Measure("nats", "−1/N Σ log p(symbol | the text with hidden symbols), in nats, over the N predicted ones")
MASKED_ACCURACY = Measure("accuracy", "share of the predicted symbols that are the likeliest", lower_is_better=False)
FOLLOWS = Measure(
    "next sentence", "share of pairs of texts whose order is recognised: the second follows, or not", False
)
MEASURES = {"loss": MASKED_NATS, "accuracy": MASKED_ACCURACY, "next_sentence": FOLLOWS}


@dataclass
class MaskedFigures:
    """The figures of every row: nats, symbols predicted, those that were right; and of its pair of texts."""

    nats: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    pairs: int = 0
    pairs_right: int = 0

    @property
    def figures(self) -> dict[str, float]:
        """The figures of all rows by name."""
        count = sum(self.counts)
        found = {
            "loss": math.fsum(self.nats) / count if count else math.nan,
            "accuracy": sum(self.right) / max(count, 1),
        }
        return found | ({"next_sentence": self.pairs_right / self.pairs} if self.pairs else {})


@torch.no_grad()
def fill(model: Any, batches: Iterable[MaskedBatch], device: torch.device) -> MaskedFigures:
    """Return how well a model fills what is hidden; it is put into eval mode meanwhile."""
    was_training = model.training
    model.eval()
    found = MaskedFigures()
    for batch in batches:
        pace()
        x, places, y = (t.to(device) for t in (batch.x, batch.places, batch.y))
        valid, segments = (None if t is None else t.to(device) for t in (batch.valid, batch.segments))
        encoded = model.encode(x, valid=valid, segments=segments)
        features = encoded.gather(1, places[..., None].expand(-1, -1, encoded.shape[2]))
        logits = model.predict(features).float()
        losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED, reduction="none")
        is_predicted = y != IGNORED
        found.nats += losses.view_as(y).double().sum(1).tolist()
        found.counts += is_predicted.sum(1).tolist()
        found.right += ((logits.argmax(-1) == y) & is_predicted).sum(1).tolist()
        if batch.follows is not None:
            is_pair = batch.follows != IGNORED
            verdict = model.follows(encoded).argmax(-1).cpu()
            found.pairs += int(is_pair.sum())
            found.pairs_right += int((verdict == batch.follows)[is_pair].sum())
    model.train(was_training)
    return found


def fill_by_counts(
    counts: NDArray[np.int64], batches: Iterable[MaskedBatch], *, has_pairs: bool
) -> dict[str, dict[str, float]]:
    """Return the figures of models without context: all symbols equally likely, and each as often as in training.

    `counts` (V,) of the training symbols; one is added to each. A pair of texts is guessed as the more frequent kind.
    """
    shares = (counts + 1) / (counts + 1).sum()
    every, follows = [], []
    for batch in batches:
        every.append(batch.y[batch.y != IGNORED].numpy())
        follows += [] if batch.follows is None else batch.follows[batch.follows != IGNORED].tolist()
    truth = np.concatenate(every)
    right = float((truth == counts.argmax()).mean())
    rows = {
        "unigram": {"loss": float(-np.log(shares[truth]).mean()), "accuracy": right},
        "uniform": {"loss": math.log(len(counts)), "accuracy": 1 / len(counts)},
    }
    if has_pairs and follows:
        share = sum(follows) / len(follows)
        rows = {name: {**row, "next_sentence": max(share, 1 - share)} for name, row in rows.items()}
    return rows
