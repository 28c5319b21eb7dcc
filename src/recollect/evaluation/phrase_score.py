"""The log-probability of given pairs under a translator: the phrase scores of Cho et al. (2014, section 3.1)."""

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
    """Compute log p(target, end | source) of each pair, in nats, with `begin` read before the target."""
    if len(sources) != len(targets):
        raise ContractError("targets", f"{len(targets)} of them", f"{len(sources)}, one for each source")
    found: list[float] = []
    for first in range(0, len(sources), batch_size):
        part = slice(first, first + batch_size)
        source, source_valid = (t.to(home(model, None)) for t in pad(sources[part]))
        check_ids(source, model.config.source_vocab, "sources")
        with undisturbed(list(model.modules())):
            memory = model.remember(source, source_valid)
        target, valid = pad([[*target, end] for target in targets[part]])
        found += score(model, target, valid, memory, begin=begin).sum(1).tolist()
    return found
