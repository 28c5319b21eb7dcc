"""The text that experiments read: Python's own language reference, as characters, and the loss of a model on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.types import AnyLayer
from recollect.data.synthetic.builtin import builtin_documents, settle_builtin
from recollect.story.judging import looks_ahead


def characters(count: int) -> tuple[Tensor, int]:
    """Return the first `count` characters as ids (T,), and how many different ones there are."""
    name = settle_builtin("python-docs", lambda text: None)
    text = "".join(builtin_documents(name))[:count]
    alphabet = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[symbol] for symbol in text]), len(alphabet)


def windows(text: Tensor, rows: int, steps: int) -> Tensor:
    """Return stretches (rows, steps + 1) from random places of a text, the last symbol only to be predicted."""
    begins = torch.randint(len(text) - steps, (rows, 1))
    return text[begins + torch.arange(steps + 1)]


def next_loss(model: AnyLayer, ids: Tensor) -> Tensor:
    """Return the mean loss of each symbol of some stretches, given those before it."""
    logits, _ = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def sees_later(model: AnyLayer, text: Tensor) -> bool:
    """Return whether what a model predicts changes with a later character: the leak check of language models."""
    return looks_ahead(lambda ids: model(ids)[0], text[None, :48], 40)
