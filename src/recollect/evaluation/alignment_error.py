"""How far attention's weights are from an alignment that is known."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.validate import ContractError


def alignment_error_rate(weights: Tensor, sure: Tensor, possible: Tensor | None = None) -> float:
    """Return the alignment error rate (Och & Ney 2003): 0 is perfect, 1 is wrong everywhere.

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    A links every target step to the source step of its largest weight; a target step without weight (padding) links
    nothing. `sure` (S) and `possible` (P; the sure ones count as possible, None: only they do) are (B, T, S) bool, as
    the weights' shape. Without a link in A and S there is nothing to get wrong: 0.
    """
    possible = sure if possible is None else possible | sure
    for name, t in (("sure", sure), ("possible", possible)):
        if t.shape != weights.shape or t.dtype != torch.bool:
            raise ContractError(name, f"{t.dtype} of shape {tuple(t.shape)}", f"bool of shape {tuple(weights.shape)}")
    best = weights.argmax(dim=2, keepdim=True)
    linked = torch.zeros_like(sure).scatter(2, best, True) & (weights > 0)
    links = int(linked.sum() + sure.sum())
    return 1 - int((linked & sure).sum() + (linked & possible).sum()) / links if links else 0.0
