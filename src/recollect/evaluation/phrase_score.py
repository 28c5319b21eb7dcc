"""How likely a translator finds given pairs: the phrase scores of Cho et al. (2014, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.core.padding import pad
from recollect.core.validate import ContractError, check_ids
from recollect.generation.log_probability import score
from recollect.generation.prefill import home, undisturbed
from recollect.models.translation import Translator

Ids = Sequence[int]


def score_pairs(
    model: Translator,
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    begin: int,
    end: int,
    *,
    batch_size: int = 64,
) -> list[float]:
    """Return log p(target, end | source) of each pair, in nats, with `begin` read before the target."""
    if len(sources) != len(targets):
        raise ContractError("targets", f"{len(targets)} of them", f"{len(sources)}, one for each source")
    found: list[float] = []
    for first in range(0, len(sources), batch_size):
        part = slice(first, first + batch_size)
        found += _score_batch(model, sources[part], [[*target, end] for target in targets[part]], begin)
    return found


def _score_batch(model: Translator, sources: Sequence[Ids], targets: Sequence[Ids], begin: int) -> list[float]:
    source, source_valid = (t.to(home(model, None)) for t in pad(sources))
    check_ids(source, model.config.source_vocab, "sources")
    with undisturbed(list(model.modules())):
        memory = model.remember(source, source_valid)
    target, valid = pad(targets)
    return score(model, target, valid, memory, begin=begin).sum(1).tolist()
