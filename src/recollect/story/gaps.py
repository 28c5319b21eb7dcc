"""Recall over a gap, which experiments on long dependencies share.

A sequence is a cue, `gap` distractors drawn from other symbols, and a query, which demands the cue: the two stand
gap + 1 steps apart. "I grew up in Italy … I speak fluent": nothing in between tells the answer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.pointwise import Embedding, Linear
from recollect.story.fitting import fit

CUES, DISTRACTORS = 4, 8
QUERY = CUES + DISTRACTORS
SYMBOLS = QUERY + 1
CHANCE = 1 / CUES
WIDTH = 16  # of a symbol's vector
BATCH, ROWS = 32, 512  # of an update, and of the test


def draw(gap: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return sequences (B, gap + 2) and the cues (B,) that they begin with."""
    cues = torch.randint(CUES, (rows, 1))
    between = CUES + torch.randint(DISTRACTORS, (rows, gap))
    return torch.cat([cues, between, torch.full((rows, 1), QUERY)], 1), cues[:, 0]


def reader(layer: AnyLayer) -> Stack:
    """Return a model that reads symbols by a layer of width `WIDTH`."""
    assert layer.width_out is not None
    return Stack(Embedding(SYMBOLS, WIDTH), layer, Linear(layer.width_out, CUES))


def loss_of(model: Stack, gap: int, rows: int = BATCH) -> Tensor:
    """Return the cross-entropy of new sequences at their query."""
    ids, cues = draw(gap, rows)
    return F.cross_entropy(model(ids)[0][:, -1], cues)


@torch.no_grad()
def accuracies(model: Stack, gap: int) -> tuple[float, float]:
    """Return the share of new sequences whose cue is recalled, and that where another's cue stands there: chance.

    What else of a sequence told its answer would still do so.
    """
    ids, cues = draw(gap, ROWS)
    exchanged = torch.cat([ids[:, :1].roll(1, 0), ids[:, 1:]], 1)
    own, other = (model(given)[0][:, -1].argmax(1) == cues for given in (ids, exchanged))
    return float(own.float().mean()), float(other.float().mean())


def trained(
    make: Callable[[], AnyLayer],
    shortest: int,
    longest: int,
    seed: int,
    updates: int,
    clip_norm: float = 1.0,
    enough: float | None = None,
) -> Stack:
    """Train a layer to recall, each update over a gap drawn from `shortest` to `longest`; return the model."""
    torch.manual_seed(seed)
    model = reader(make())
    fit(model, lambda: loss_of(model, int(torch.randint(shortest, longest + 1, ()))), updates, 5e-3, enough, clip_norm)
    return model
