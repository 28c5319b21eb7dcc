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
from torch import Tensor

from recollect.core.task import Measure
from recollect.core.threads import pace
from recollect.data.text.masked_batches import IGNORED, MaskedBatch
from recollect.evaluation.likelihood import UNKNOWN

MASKED_NATS = Measure("nats", "−1/N Σ log p(symbol | the text with hidden symbols), in nats, over the N known ones")
MASKED_ACCURACY = Measure("accuracy", "share of the known hidden symbols that are the likeliest", lower_is_better=False)
FOLLOWS = Measure(
    "next sentence", "share of pairs of texts whose order is recognised: the second follows, or not", False
)
MEASURES = {"loss": MASKED_NATS, "accuracy": MASKED_ACCURACY, "unknown": UNKNOWN, "next_sentence": FOLLOWS}


@dataclass
class MaskedFigures:
    """The figures of every row: nats, known symbols predicted, those that were right; and of its pair of texts."""

    nats: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    unknown: int | None = None  # hidden symbols that are left out; None: every symbol of the part is known
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
        found |= {} if self.unknown is None else {"unknown": self.unknown / max(count + self.unknown, 1)}
        return found | ({"next_sentence": self.pairs_right / self.pairs} if self.pairs else {})


@torch.no_grad()
def fill(model: Any, batches: Iterable[MaskedBatch], device: torch.device, unknown: int | None = None) -> MaskedFigures:
    """Return how well a model fills what is hidden; it is put into eval mode meanwhile.

    `unknown`: the id of symbols that are not in the vocabulary. They are read, left out of the figures and no answer.
    """
    was_training = model.training
    model.eval()
    found = MaskedFigures(unknown=None if unknown is None else 0)
    for batch in batches:
        pace()
        x, places, y = (t.to(device) for t in (batch.x, batch.places, batch.y))
        valid, segments = (None if t is None else t.to(device) for t in (batch.valid, batch.segments))
        encoded = model.encode(x, valid=valid, segments=segments)
        features = encoded.gather(1, places[..., None].expand(-1, -1, encoded.shape[2]))
        _add_symbols(found, model.predict(features).float(), y, unknown)
        if batch.follows is not None:
            is_pair = batch.follows != IGNORED
            verdict = model.follows(encoded).argmax(-1).cpu()
            found.pairs += int(is_pair.sum())
            found.pairs_right += int((verdict == batch.follows)[is_pair].sum())
    model.train(was_training)
    return found


def _add_symbols(found: MaskedFigures, logits: Tensor, y: Tensor, unknown: int | None) -> None:
    """Add the figures of some rows, of logits (B, P, V) and the hidden symbols (B, P)."""
    known = known_targets(y, unknown)
    is_predicted = known != IGNORED
    losses = F.cross_entropy(logits.flatten(0, 1), known.flatten(), ignore_index=IGNORED, reduction="none")
    found.nats += losses.view_as(y).double().sum(1).tolist()
    found.counts += is_predicted.sum(1).tolist()
    if unknown is not None and found.unknown is not None:
        found.unknown += int((y == unknown).sum())
        logits[..., unknown] = -torch.inf  # after the loss: what it was given is lost, but `predict` never answers it
    found.right += ((logits.argmax(-1) == known) & is_predicted).sum(1).tolist()


def known_targets(y: Tensor, unknown: int | None) -> Tensor:
    """Return hidden symbols without those that are not in the vocabulary."""
    return y if unknown is None else y.masked_fill(y == unknown, IGNORED)


def fill_by_counts(
    counts: NDArray[np.int64], batches: Iterable[MaskedBatch], *, has_pairs: bool, unknown: int | None = None
) -> dict[str, dict[str, float]]:
    """Return the figures of models without context: all symbols equally likely, and each as often as in training.

    `counts` (V,) of the training symbols; one is added to each. A pair of texts is guessed as the more frequent kind.
    `unknown` is as in `fill`.
    """
    shares = (counts + 1) / (counts + 1).sum()
    every, follows, hidden = [], [], 0
    for batch in batches:
        known = known_targets(batch.y, unknown)
        every.append(known[known != IGNORED].numpy())
        hidden += batch.count
        follows += [] if batch.follows is None else batch.follows[batch.follows != IGNORED].tolist()
    truth = np.concatenate(every)
    likeliest = (counts if unknown is None else np.where(np.arange(len(counts)) == unknown, -1, counts)).argmax()
    loss, right = (-np.log(shares[truth]).mean(), (truth == likeliest).mean()) if len(truth) else (math.nan, 0.0)
    rows = {
        "unigram": {"loss": float(loss), "accuracy": float(right)},
        "uniform": {"loss": math.log(len(counts)), "accuracy": 1 / len(counts)},
    }
    more = {} if unknown is None else {"unknown": (hidden - len(truth)) / hidden}
    if has_pairs and follows:
        share = sum(follows) / len(follows)
        more["next_sentence"] = max(share, 1 - share)
    return {name: row | more for name, row in rows.items()}
