"""How well a language model predicts a text: one number per call, over the whole text, whatever the batch size.

Two ways to read, which differ: with the memory **carried** through the text from its beginning to its end, or in
**cold** windows that each begin anew. A model whose memory grows without bound is only read in windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recollect.layer import SequenceLayer


@dataclass(frozen=True)
class Score:
    """The summed negative log-probability of a text's symbols, each given those before it."""

    nats: float  # in all
    tokens: int  # symbols predicted

    @property
    def loss(self) -> float:
        """Nats per symbol."""
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp(nats per symbol)."""
        return math.exp(self.loss)

    def bits_per(self, units: int) -> float:
        """Bits per character or byte of a text that has so many."""
        return self.nats / math.log(2) / units if units else math.nan


def score_carried(model: SequenceLayer[Any], ids: NDArray[Any], steps: int = 256) -> Score:
    """Predict every symbol but the first, reading the text once with its memory carried along."""

    def stretches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(ids) - 1, steps):
            piece = _tensor(ids[start : start + steps + 1], model)[None]
            yield piece[:, :-1], piece[:, 1:]

    nats, memory = 0.0, None
    with _reading(model):
        for x, y in stretches():
            logits, memory = model(x, memory)
            nats += _nats(logits, y)
    return Score(nats, max(len(ids) - 1, 0))


def score_windows(model: SequenceLayer[Any], ids: NDArray[Any], steps: int = 256, batch_size: int = 32) -> Score:
    """Predict every symbol but the first, in windows of `steps` that begin with nothing remembered.

    The last window may be shorter; it is padded, never dropped.
    """
    starts = range(0, max(len(ids) - 1, 0), steps)
    nats = 0.0
    with _reading(model):
        for first in range(0, len(starts), batch_size):
            pieces = [ids[s : s + steps + 1] for s in starts[first : first + batch_size]]
            longest = max(len(p) for p in pieces)
            rows = np.stack([np.pad(np.asarray(p, dtype=np.int64), (0, longest - len(p))) for p in pieces])
            counts = torch.tensor([len(p) - 1 for p in pieces])
            valid = (torch.arange(longest - 1) < counts[:, None]).to(_device(model))
            batch = _tensor(rows, model)
            logits, _ = model(batch[:, :-1], valid=valid)
            nats += _nats(logits[valid], batch[:, 1:][valid])
    return Score(nats, max(len(ids) - 1, 0))


def loss_by_position(model: SequenceLayer[Any], ids: NDArray[Any], steps: int = 256, windows: int = 64) -> list[float]:
    """Give the mean nats at each place of a cold window: how much the model gains from what came before."""
    count = windows if len(ids) > steps else 0
    starts = np.linspace(0, max(len(ids) - steps - 1, 0), count).astype(int)
    total = torch.zeros(steps, dtype=torch.float64)
    with _reading(model):
        for start in starts:
            piece = _tensor(ids[start : start + steps + 1], model)[None]
            logits, _ = model(piece[:, :-1])
            total += F.cross_entropy(logits[0].double(), piece[0, 1:], reduction="none").cpu()
    return (total / max(count, 1)).tolist()


def _nats(logits: Tensor, y: Tensor) -> float:
    # Summed in float64: over millions of symbols float32 would lose the last digits that are shown.
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    losses = F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none")
    return float(losses.double().sum())


def _tensor(ids: NDArray[Any], model: SequenceLayer[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(_device(model))


def _device(model: SequenceLayer[Any]) -> torch.device:
    return model._home()[1] or torch.device("cpu")


@contextmanager
def _reading(model: SequenceLayer[Any]) -> Iterator[None]:
    """Eval mode without gradients, and the mode put back afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
