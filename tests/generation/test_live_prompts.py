"""Prompts of a continuous batch are read together where that is faster, and no request waits for company in vain."""

from __future__ import annotations

import random

import pytest

from generate_models import VOCAB, language_model
from recollect.generation.request import Request
from recollect.generation.sampling import generate
from recollect.generation.scheduler import Scheduler
from recollect.generation.settings import Settings


def requests_of(lengths: list[int], tokens: int = 3) -> list[Request]:
    draw = random.Random(0)
    return [
        Request(ids=[draw.randrange(VOCAB) for _ in range(length)], settings=Settings(tokens=tokens, seed=i))
        for i, length in enumerate(lengths)
    ]


def calls_of(model, monkeypatch) -> list[tuple[int, int, bool]]:
    """Return a list to which every call of the model adds its rows, its steps, and whether it has a mask."""
    calls = []
    original = type(model).forward

    def noted(self, ids, memory=None, *, valid=None):
        calls.append((*ids.shape, valid is not None))
        return original(self, ids, memory, valid=valid)

    monkeypatch.setattr(type(model), "forward", noted)
    return calls


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("lstm", [(4, 9), (3, 32), (3, 5), (2, 48), (2, 6), (1, 144), (1, 12)]),
        ("mixed", [(4, 256)]),
    ],
)
def test_prompts_are_read_as_far_as_the_shortest_goes(family, expected, monkeypatch):
    model = language_model(family)
    scheduler = Scheduler(model)
    asked = requests_of([256, 9, 100, 46])
    for request in asked:
        scheduler.submit(request)
    calls = calls_of(model, monkeypatch)
    events = scheduler.tick()
    assert [shape for *shape, _ in calls[:-1]] == [list(shape) for shape in expected]
    assert all(has_mask == (family == "mixed") for *_, has_mask in calls[:-1])
    assert calls[-1] == (4, 1, False)  # all have joined
    while scheduler.is_busy:
        events += scheduler.tick()
    for request in asked:
        ids = [e.id for e in events if e.ticket.request is request and e.id >= 0]
        assert ids == generate(model, [request.ids], request.settings)[0].ids


def test_where_more_wait_than_there_are_places_several_are_admitted_at_once():
    scheduler = Scheduler(language_model("lstm"), most=16)
    for request in requests_of([5] * 40, tokens=50):
        scheduler.submit(request)
    scheduler.tick()
    assert scheduler.active == 16
    first, second = [row.ticket for row in scheduler.rows[:2]]
    first.cancel()
    scheduler.tick()
    assert scheduler.active == 15  # one place is free, and kept
    second.cancel()
    scheduler.tick()
    assert scheduler.active == 16


def test_a_request_for_which_there_is_a_place_never_waits():
    scheduler = Scheduler(language_model("lstm"), most=16)
    for request in requests_of([5] * 15, tokens=50):
        scheduler.submit(request)
    scheduler.tick()
    (late,) = requests_of([3])
    scheduler.submit(late)
    assert any(e.ticket.request is late for e in scheduler.tick())
    for count in (1, 2):  # a batch of one or two rows keeps none free
        small = Scheduler(language_model("lstm"), most=count)
        for request in requests_of([2] * 5, tokens=1):
            small.submit(request)
        ticks = [len(small.tick()) for _ in range(-(-5 // count))]
        assert sum(ticks) == 5
