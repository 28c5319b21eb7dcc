"""What experiments that train share: one loop, and translators of sequences that are drawn."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.models.translation import Translator

WARM_UP = 20  # updates
Pairs = tuple[Tensor, Tensor]  # sources (B, S) and targets (B, T)


def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    updates: int,
    rate: float = 5e-3,
    enough: float | None = None,
    clip_norm: float = 1.0,
) -> None:
    """Minimise a loss that is drawn at each update: Adam, its rate warmed up and then lowered linearly to 0.

    `enough` ends the training early, once the mean of the latest losses (about ten) is below it.
    """
    optimizer = torch.optim.Adam(model.parameters(), rate)
    recent: float | None = None
    for update in range(updates):
        share = min((update + 1) / WARM_UP, 1.0) * (1 - update / updates)
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        value = loss()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        if enough is not None:
            recent = float(value.detach()) if recent is None else 0.9 * recent + 0.1 * float(value.detach())
            if recent < enough:
                return


def teach(
    model: Translator,
    draw: Callable[[], Pairs],
    updates: int,
    begin: int = 0,
    rate: float = 5e-3,
    enough: float | None = None,
) -> None:
    """Train a translator on drawn pairs; `begin` is read before each target."""

    def loss() -> Tensor:
        source, target = draw()
        return F.cross_entropy(logits_of(model, source, target, begin).flatten(0, 1), target.flatten())

    fit(model, loss, updates, rate, enough)


def logits_of(model: Translator, source: Tensor, target: Tensor, begin: int = 0) -> Tensor:
    """Return the logits (B, T, V) of each target symbol, given those before it."""
    given = F.pad(target[:, :-1], (1, 0), value=begin)
    return model(given, model.remember(source))[0]


@torch.no_grad()
def hits(model: Translator, source: Tensor, target: Tensor, begin: int = 0) -> Tensor:
    """Return where the likeliest symbol is the target's, (B, T), given those before it.

    A row is right throughout exactly where greedy generation emits the whole target.
    """
    return logits_of(model, source, target, begin).argmax(2) == target


def size_of(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in model.parameters())
