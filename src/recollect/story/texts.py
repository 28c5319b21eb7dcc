"""The text that experiments read: Python's own language reference, as characters."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.data.synthetic.builtin import builtin_documents, settle_builtin


def characters(count: int) -> tuple[Tensor, int]:
    """Return the first `count` characters as ids (T,), and how many different ones there are."""
    name = settle_builtin("python-docs", lambda text: None)
    text = "".join(builtin_documents(name))[:count]
    alphabet = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[symbol] for symbol in text]), len(alphabet)
