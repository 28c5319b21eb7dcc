"""What search through every kind of model is held to."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.core.memory import Memory
from recollect.generation.beam import beam
from recollect.generation.sampling import generate
from recollect.generation.settings import Search, Settings


def check_search(model: Any, memory: Memory, begin: int, end: int) -> None:
    """A beam of one is greedy, and what stands beside a row in its batch changes nothing; four rows, in float64."""
    greedy = generate(model, [[]] * 4, Settings(tokens=6, greedy=True, begin=begin, stop=[end]), memory)
    one = beam(model, [[]] * 4, Search(width=1, tokens=6, begin=begin, end=[end]), memory)
    assert [found[0].ids for found in one] == [found.ids for found in greedy]
    search = Search(width=3, tokens=6, nbest=3, begin=begin, end=[end])
    together = beam(model, [[]] * 4, search, memory)
    for row in range(4):
        alone = beam(model, [[]], search, memory.select([row]))[0]
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]], rel=1e-9)
