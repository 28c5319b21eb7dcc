"""What one vector c retains of a source, by position: a linear classifier predicts each symbol from it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.data.pairs.pair_batches import gather_pairs, groups_by_length
from recollect.data.pairs.pair_rows import PairPart
from recollect.data.pairs.pairs import Pairs
from recollect.models.encoders import top
from recollect.models.translation import Translator

PLACES = (0, 1, 2, 3, 4, -5, -4, -3, -2, -1)  # from the beginning, and from the end
SHORTEST, UPDATES, BATCH, RATE = 12, 300, 2048, 3e-3  # of 2 · 5 places none is counted twice


def what_c_remembers(model: Translator, data: Pairs, part: PairPart) -> list[dict[str, float]]:
    """Return, for each position in sources of at least SHORTEST symbols, the accuracy of held-out symbols from c.

    c is the encoder's final state (of the uppermost layer), the classifier softmax(W c + b), learned on the training
    pairs' sources. `usual` is the share of the symbol that is most frequent there in training.
    """
    known, seen = (_encoded(model, pairs, data) for pairs in (data.train, part))
    return [_read_back(known, seen, place) for place in PLACES]


@torch.no_grad()
def _encoded(model: Translator, part: PairPart, data: Pairs) -> tuple[Tensor, Tensor]:
    """Return the vectors c (N, H) and the symbols at PLACES (N, P)."""
    home, vectors, symbols = next(model.parameters()).device, [], []
    for numbers in groups_by_length(part, np.flatnonzero(part.sources.lengths >= SHORTEST), 8192):
        batch = gather_pairs(part, numbers, data.begin, data.end)
        valid = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_valid is None else batch.source_valid
        _, states = model.encoder(batch.source.to(home), valid=valid.to(home))
        vectors.append(top(states).hidden)
        counts = valid.sum(1)
        at = torch.stack([counts + place if place < 0 else torch.full_like(counts, place) for place in PLACES], dim=1)
        symbols.append(batch.source.gather(1, at).to(home))
    return torch.cat(vectors), torch.cat(symbols)


def _read_back(known: tuple[Tensor, Tensor], seen: tuple[Tensor, Tensor], place: int) -> dict[str, float]:
    column = PLACES.index(place)
    (c, target), (held_out, answer) = ((vectors, symbols[:, column]) for vectors, symbols in (known, seen))
    mean, scale = c.mean(0), c.std(0) + 1e-6
    counts = target.bincount(minlength=int(max(target.max(), answer.max())) + 1)
    read = _learn((c - mean) / scale, target, counts)
    right = read((held_out - mean) / scale).argmax(1) == answer
    usual = answer == counts.argmax()
    return {"place": place, "right": float(right.float().mean()), "usual": float(usual.float().mean())}


def _learn(c: Tensor, target: Tensor, counts: Tensor) -> torch.nn.Linear:
    """Start from the symbols' frequencies, and stop where the loss of a held-out tenth is lowest.

    Otherwise it overfits, and is worse than the most frequent symbol where c holds no information.
    """
    torch.manual_seed(0)
    order = torch.randperm(len(c), device=c.device)
    apart, rows = order[: len(c) // 10], order[len(c) // 10 :]
    read = torch.nn.Linear(c.shape[1], len(counts)).to(c.device)
    with torch.no_grad():
        read.weight.zero_()
        read.bias.copy_((counts + 0.1).log())
    optimiser, best = torch.optim.Adam(read.parameters(), lr=RATE), (float("inf"), read.state_dict())
    for update in range(UPDATES + 1):
        if update % 25 == 0:
            with torch.no_grad():
                loss = float(F.cross_entropy(read(c[apart]), target[apart]))
            if loss < best[0]:
                best = loss, {name: t.clone() for name, t in read.state_dict().items()}
        some = rows[torch.randint(len(rows), (BATCH,), device=c.device)]
        optimiser.zero_grad()
        F.cross_entropy(read(c[some]), target[some]).backward()
        optimiser.step()
    read.load_state_dict(best[1])
    return read
