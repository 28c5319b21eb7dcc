"""The next id of every row of a batch, each row by its own settings and its own random generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.generation.filters import apply_filters, draw, likeliest, penalise_repetition, prohibit
from recollect.generation.settings import Settings


@dataclass
class Chooser:
    """How one row chooses: its settings, its generator, and the ids that it has seen, for the repetition penalty.

    The generator is that of `generate` for the row `number`, so that the ids are those that the row alone would get.
    """

    settings: Settings
    number: int = 0
    seen: list[int] = field(default_factory=list)
    alternatives: int | None = None  # likeliest ids to report; None: no log-probabilities at all

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng([self.settings.seed, self.number])
        self.group = replace(self.settings, tokens=0, seed=0, stop=())  # rows of one group are filtered together


class Choice(NamedTuple):
    """The id that a row chose; −1: its logits are NaN or leave nothing to choose."""

    id: int
    log_p: float = 0.0  # under the model, before temperature and filters; 0 where it was not asked for
    alternatives: tuple[tuple[int, float], ...] = ()  # the likeliest ids, each with its log p


def choose(logits: Tensor, choosers: Sequence[Chooser | None]) -> list[Choice | None]:
    """Return each row's next id from logits (B, V); None in rows without a chooser."""
    groups: dict[Settings, list[int]] = {}
    for row, one in enumerate(choosers):
        if one is not None:
            groups.setdefault(one.group, []).append(row)
    found: list[Choice | None] = [None] * len(choosers)
    for settings, rows in groups.items():
        some = [one for row in rows if (one := choosers[row]) is not None]
        own = logits if len(rows) == len(logits) else logits[rows]
        for row, choice in zip(rows, _chosen(own, settings, some), strict=True):
            found[row] = choice
    return found


def _chosen(logits: Tensor, settings: Settings, choosers: list[Chooser]) -> list[Choice]:
    """Return the choices of rows that share their settings."""
    prohibited = list(settings.prohibited)
    scored = logits
    if settings.repetition_penalty != 1:
        seen = [torch.tensor(one.seen, dtype=torch.long) for one in choosers]
        scored = penalise_repetition(logits, seen, settings.repetition_penalty)
    if settings.greedy:
        ids = likeliest(scored, prohibited)
    else:
        uniform = [one.generator.random() for one in choosers]
        ids = draw(apply_filters(prohibit(scored, prohibited), settings), uniform)
    own = logits.gather(-1, ids[:, None])[:, 0].tolist()
    barred = set(prohibited)
    chosen = [i if math.isfinite(x) and i not in barred else -1 for i, x in zip(ids.tolist(), own, strict=True)]
    last = logits.shape[-1] - 1  # where `draw` ends in a row that has NaN or infinity anywhere
    chosen = [-1 if i == last and not logits[row].amax().isfinite() else i for row, i in enumerate(chosen)]
    for one, i in zip(choosers, chosen, strict=True):
        one.seen.append(i)
    return _with_log_p(logits, chosen, choosers)


def _with_log_p(logits: Tensor, chosen: list[int], choosers: list[Chooser]) -> list[Choice]:
    """Return the choices, with log-probabilities in the rows that ask for them."""
    found = [Choice(i) for i in chosen]
    for row, one in enumerate(choosers):
        if one.alternatives is None or chosen[row] < 0:
            continue
        log_p = logits[row].log_softmax(dim=-1)
        best = log_p.topk(min(one.alternatives, len(log_p)))
        pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        found[row] = Choice(chosen[row], float(log_p[chosen[row]]), pairs)
    return found
