"""The likelihood of a text under a model: one number per call, over the whole text, independent of the batch size.

Two variants, with different results: with the memory **carried** through each document from start to end, or in
**cold** windows that each start without memory. A model whose memory grows without bound is only read in windows. A
document's first symbol is not predicted; a text without ends is one document.

A symbol that is not in the vocabulary is never counted as predicted, however likely the model finds it that one comes:
it is read and left out, and its share is shown beside the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.observer import tell
from recollect.core.task import Measure, Scores
from recollect.core.threads import pace
from recollect.core.types import AnyLayer
from recollect.data.images.caption_batches import gather_captions
from recollect.data.images.captions import CaptionPart
from recollect.data.pairs.pair_batches import gather_pairs, groups_by_length
from recollect.data.pairs.pair_rows import PairPart
from recollect.data.text.batches import gather
from recollect.data.text.documents import Documents, Ends, Places, Spread
from recollect.data.text.tokenizer import IdArray
from recollect.generation.captions import remember
from recollect.generation.log_probability import score
from recollect.models.captioning import Captioner
from recollect.models.language import LanguageModel

NATS = Measure("nats", "−1/N Σ log p(symbol | what came before), in nats per symbol, over the N known symbols")
UNKNOWN = Measure("unknown", "share of the symbols that are not in the vocabulary: no figure counts them as predicted")


@dataclass(frozen=True)
class Likelihood:
    """The summed negative log-probability of a text's symbols, each given those before it."""

    nats: float  # in total
    tokens: int  # symbols predicted
    unknown: int = 0  # symbols that are not in the vocabulary, and were left out

    @property
    def loss(self) -> float:
        """Nats per symbol."""
        return self.nats / self.tokens if self.tokens else math.nan

    def __add__(self, other: Likelihood) -> Likelihood:
        return Likelihood(self.nats + other.nats, self.tokens + other.tokens, self.unknown + other.unknown)

    @property
    def figures(self) -> dict[str, float]:
        """The loss, and the share of symbols that it leaves out."""
        return {"loss": self.loss, "unknown": self.unknown / max(self.predicted, 1)}

    @property
    def predicted(self) -> int:
        """All symbols after the first of each document, known or not."""
        return self.tokens + self.unknown

    @property
    def perplexity(self) -> float:
        """exp(nats per symbol)."""
        return math.exp(self.loss)

    def bits_per(self, units: int) -> float:
        """Bits per character or byte, for a text of `units` of them."""
        return self.nats / math.log(2) / units if units else math.nan


def score_carried(
    model: AnyLayer,
    ids: IdArray,
    steps: int = 256,
    batch_size: int = 32,
    ends: Ends = None,
    unknown: int | None = None,
) -> Likelihood:
    """Predict every symbol but a document's first, reading each document once with its memory carried along.

    `unknown`: the id of symbols that are not in the vocabulary. They are read, and left out of the likelihood.
    """
    documents = Documents(ids, ends)
    total = Likelihood(0.0, 0)
    with _reading(model):
        for starts, lengths in documents.by_length(batch_size):
            total += _read_carried(
                model, ids, starts, lengths - 1, steps, unknown, (total.predicted, documents.predicted)
            )
    return total


def validation_scores(
    model: LanguageModel,
    ids: IdArray,
    steps: int,
    ends: Ends = None,
    unknown: int | None = None,
    *,
    carried: bool | None = None,
) -> Scores:
    """Return the loss over a whole text: carried where training carries, in cold windows otherwise.

    `carried`: whether training did; by default where the memory is bounded.
    """
    is_carried = model.carries if carried is None else carried
    score, row = (score_carried, "carried") if is_carried else (score_windows, "cold windows")
    return scores_of(row, score(model, ids, steps, ends=ends, unknown=unknown), unknown)


def scores_of(row: str, found: Likelihood, unknown: int | None) -> Scores:
    """Return a likelihood as the scores of a validation; where symbols may be unknown, with their share."""
    if unknown is None:
        return Scores({"loss": NATS}, {row: {"loss": found.loss}})
    return Scores({"loss": NATS, "unknown": UNKNOWN}, {row: found.figures})


def _read_carried(
    model: AnyLayer,
    ids: IdArray,
    places: Places,
    counts: Places,
    steps: int,
    unknown: int | None,
    progress: tuple[int, int],
) -> Likelihood:
    """Return the nats of documents that are read in one batch, longest first; finished ones are dropped from it.

    `progress`: symbols predicted before this batch, and in all.
    """
    before, everything = progress
    total, memory = Likelihood(0.0, 0), None
    for done in range(0, int(counts[0]), steps):
        rows = slice(int((counts > done).sum()))
        if memory is not None and rows.stop < memory.batch_size:
            memory = memory.select(rows)
        x, y, valid = _on(model, gather(ids, places[rows] + done, np.minimum(counts[rows] - done, steps)))
        logits, memory = model(x, memory, valid=valid)
        total += _summed(logits, y, valid, unknown)
        tell("carried", before + total.predicted, everything)
    return total


def score_windows(
    model: AnyLayer,
    ids: IdArray,
    steps: int = 256,
    batch_size: int = 32,
    ends: Ends = None,
    unknown: int | None = None,
) -> Likelihood:
    """Predict every symbol but a document's first, in windows of `steps` that start without memory.

    A document's last window may be shorter; it is padded, never dropped. `unknown` is as in `score_carried`.
    """
    documents = Documents(ids, ends)
    total = Likelihood(0.0, 0)
    with _reading(model):
        for starts, counts in _groups(documents.cold_windows(steps), batch_size):
            x, y, valid = _on(model, gather(ids, starts, counts))
            total += _summed(model(x, valid=valid)[0], y, valid, unknown)
            tell("cold windows", total.predicted, documents.predicted)
    return total


def score_targets(
    model: Any,
    part: PairPart,
    begin: int,
    end: int,
    tokens: int = 8192,
    limit: int | None = None,
    unknown: int | None = None,
) -> Likelihood:
    """Predict every symbol of the targets, and their ends, each target given its source and what came before in it.

    `limit`: of the first so many pairs. `unknown` is as in `score_carried`.
    """
    total = Likelihood(0.0, 0)
    with _reading(model):
        for numbers in groups_by_length(part, np.arange(len(part))[:limit], tokens):
            batch = gather_pairs(part, numbers, begin, end)
            source, _, source_valid = _on(model, (batch.source, batch.source, batch.source_valid))
            x, y, valid = _on(model, (batch.x, batch.y, batch.valid))
            logits, _ = model(x, model.remember(source, source_valid), valid=valid)
            total += _summed(logits, y, valid, unknown)
    return total


def score_captions(
    model: Captioner,
    part: CaptionPart,
    begin: int,
    end: int,
    batch_size: int = 256,
    limit: int | None = None,
    unknown: int | None = None,
) -> Likelihood:
    """Predict every symbol of the captions, and their ends, each given its picture and what came before in it.

    `limit`: of the first so many captions. `unknown` is as in `score_carried`.
    """
    total = Likelihood(0.0, 0)
    for numbers in groups_by_length(part.pairs, np.arange(len(part))[:limit], batch_size=batch_size):
        batch = gather_captions(part, numbers, begin, end)
        found = score(model, batch.y, batch.valid, remember(model, part.pictures_of(numbers)), begin=begin)
        total += _of_losses(-found.double(), batch.y, batch.valid, unknown)
    return total


def loss_by_position(
    model: AnyLayer,
    ids: IdArray,
    steps: int = 256,
    windows: int = 64,
    batch_size: int = 32,
    ends: Ends = None,
    unknown: int | None = None,
) -> list[float]:
    """Return the mean nats at each position of a cold window: how much the model gains from its context.

    Where no document is that long, there are fewer than `steps` positions. `unknown` is as in `score_carried`.
    """
    documents = Documents(ids, ends)
    if not documents.predicted:
        return []
    starts, counts = Spread(documents, steps).at(np.arange(windows) / windows)
    total = torch.zeros(int(counts.max()), dtype=torch.float64)
    reached = torch.zeros(len(total), dtype=torch.int64)
    with _reading(model):
        for group in _groups(zip(starts, counts, strict=True), batch_size):
            x, y, valid = _on(model, gather(ids, *group))
            is_counted = _counted(y, valid, unknown)
            losses = _losses(model(x, valid=valid)[0], y).masked_fill(~is_counted, 0)
            total[: x.shape[1]] += losses.sum(0).cpu()
            reached[: x.shape[1]] += is_counted.sum(0).cpu()
    return (total / reached).tolist()


def _groups(windows: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[Places, Places]]:
    windows = iter(windows)
    while group := list(islice(windows, size)):
        starts, counts = np.array(group, dtype=np.int64).T
        yield starts, counts


def _summed(logits: Tensor, y: Tensor, valid: Tensor | None, unknown: int | None) -> Likelihood:
    """Return the likelihood of a batch of predictions."""
    return _of_losses(_losses(logits, y), y, valid, unknown)


def _of_losses(losses: Tensor, y: Tensor, valid: Tensor | None, unknown: int | None) -> Likelihood:
    is_counted = _counted(y, valid, unknown)
    count = int(is_counted.sum())
    predicted = int(y.numel() if valid is None else valid.sum())
    return Likelihood(float(losses.masked_fill(~is_counted, 0).sum()), count, predicted - count)


def _counted(y: Tensor, valid: Tensor | None, unknown: int | None) -> Tensor:
    """Return (B, T) bool: where a symbol is valid and known."""
    is_known = torch.ones_like(y, dtype=torch.bool) if unknown is None else y != unknown
    return is_known if valid is None else is_known & valid


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """Return the nats of each symbol (B, T)."""
    # In float64: over millions of symbols a sum in float32 would lose the last digits that are shown.
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none").double().view_as(y)


def _on(model: AnyLayer, batch: tuple[Tensor, Tensor, Tensor | None]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Move a batch to the model's device; between two batches, threads may follow the load."""
    pace()
    device = model._home()[1] or torch.device("cpu")
    x, y, valid = batch
    return x.to(device), y.to(device), None if valid is None else valid.to(device)


@contextmanager
def _reading(model: AnyLayer) -> Iterator[None]:
    """Switch to eval mode without gradients, and restore the mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
