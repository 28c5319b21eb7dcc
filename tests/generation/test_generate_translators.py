"""Search through whole translators: what stands beside a source in its batch changes nothing."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from recollect.generation.beam import Hypothesis, beam
from recollect.generation.log_probability import score
from recollect.generation.sampling import generate
from recollect.generation.settings import Search, Settings
from recollect.models.translation import TranslationConfig, Translator

FAMILIES = ["bahdanau", "transformer"]
BEGIN, END = 0, 1


def translator(family: str, vocab_size: int = 11) -> Translator:
    """Give a translator with fixed float64 weights, sharp enough not to say the same for every source."""
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, vocab_size, width=8, hidden=12, heads=2)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2 if p.dim() > 1 else 1)
        model.decoder.out.weight.normal_(std=4.0)
    return model.eval()


def sources(count: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    valid = torch.arange(7) < torch.randint(0, 8, (count, 1), generator=draw)
    return torch.randint(9, (count, 7), generator=draw), valid


def search_from(model: Translator, source: Tensor, valid: Tensor, search: Search) -> list[list[Hypothesis]]:
    with torch.no_grad():
        memory = model.remember(source, valid)
    return beam(model, [[]] * len(source), search, memory)


def same(found: list[Hypothesis], want: list[Hypothesis]) -> None:
    assert [(h.ids, h.reason) for h in found] == [(h.ids, h.reason) for h in want]
    for a, b in zip(found, want, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-9)
        assert a.score == pytest.approx(b.score, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [1, 4])
def test_one_source_alone_equals_a_batch_of_64_in_any_order(family, width):
    model, (source, valid) = translator(family), sources(64)
    search = Search(width=width, nbest=width, tokens=9, begin=BEGIN, end=[END])
    together = search_from(model, source, valid, search)
    backwards = search_from(model, source.flip(0), valid.flip(0), search)[::-1]
    assert len({tuple(best[0].ids) for best in together}) > 8
    for i in range(64):
        same(backwards[i], together[i])
        same(search_from(model, source[i : i + 1], valid[i : i + 1], search)[0], together[i])


@pytest.mark.parametrize("family", FAMILIES)
def test_width_1_is_greedy(family):
    model, (source, valid) = translator(family), sources(64)
    search = Search(width=1, tokens=9, begin=BEGIN, end=[END])
    with torch.no_grad():
        memory = model.remember(source, valid)
    greedy = generate(model, [[]] * 64, Settings(tokens=9, greedy=True, begin=BEGIN, stop=[END]), memory)
    found = search_from(model, source, valid, search)
    assert [h.ids for [h] in found] == [g.ids for g in greedy]
    assert [h.logprobs for [h] in found] == [pytest.approx(g.logprobs, abs=1e-9) for g in greedy]
    assert len({len(g.ids) for g in greedy}) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_as_wide_as_the_space_is_exhaustive_search(family):
    model, (source, valid), tokens = translator(family, vocab_size=3), sources(3), 4
    search = Search(width=3**tokens, tokens=tokens, nbest=12, begin=BEGIN, end=[END], patience="exact")
    for row, found in enumerate(search_from(model, source, valid, search)):
        with torch.no_grad():
            memory = model.remember(source[row : row + 1], valid[row : row + 1])
        every = []
        for size in range(1, tokens + 1):
            for ids in product(range(3), repeat=size):
                if END not in ids[:-1] and (ids[-1] == END or size == tokens):
                    logprobs = score(model, torch.tensor([ids]), None, memory, begin=BEGIN)[0].tolist()
                    every.append((search.normalised(sum(logprobs), size), list(ids)))
        every.sort(key=lambda pair: -pair[0])
        assert [h.ids for h in found] == [ids for _, ids in every[:12]]
        assert [h.score for h in found] == pytest.approx([s for s, _ in every[:12]], abs=1e-9)
