"""The distance of attention weights from a known alignment."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.validate import ContractError


def alignment_error_rate(weights: Tensor, sure: Tensor, possible: Tensor | None = None) -> float:
    """Compute the alignment error rate (Och & Ney 2003): 0 is perfect, 1 has no correct link.

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    A links every target step to the source step of its largest weight; a target step without weight (padding) has no
    link. `sure` (S) and `possible` (P, which includes S; None: S alone) are bool and, as the weights, (B, T, S).
    Without a link in A and S the rate is 0.
    """
    possible = sure if possible is None else possible | sure
    for name, t in (("sure", sure), ("possible", possible)):
        if t.shape != weights.shape or t.dtype != torch.bool:
            raise ContractError(name, f"{t.dtype} of shape {tuple(t.shape)}", f"bool of shape {tuple(weights.shape)}")
    best = weights.argmax(dim=2, keepdim=True)
    linked = torch.zeros_like(sure).scatter(2, best, True) & (weights > 0)
    links = int(linked.sum() + sure.sum())
    return 1 - int((linked & sure).sum() + (linked & possible).sum()) / links if links else 0.0
