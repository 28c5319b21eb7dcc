"""Continuous batching: whatever joins and leaves, every row is what `generate` gives for it alone."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import torch

import recollect as rc
from generate_models import FAMILIES, VOCAB, language_model
from recollect.core.placement import place, same_layout
from recollect.core.validate import ContractError
from recollect.generation import footprint, live_batch, live_prompts
from recollect.generation.choice import Chooser, choose
from recollect.generation.footprint import Footprint
from recollect.generation.request import Event, Request, Ticket
from recollect.generation.sampling import Generation, generate
from recollect.generation.scheduler import Full, Scheduler
from recollect.generation.settings import Settings
from recollect.models.translation import TranslationConfig, Translator


def run(scheduler: Scheduler, requests: list[Request], draw: random.Random, often: float = 0.4) -> list[Event]:
    """Submit requests at random ticks, and return every event until all have ended."""
    left = list(requests)
    events: list[Event] = []
    while left or scheduler.is_busy:
        if left and draw.random() < often:
            scheduler.submit(left.pop())
        events += scheduler.tick()
    return events


def ids_of(events: list[Event], request: Request, row: int = 0) -> list[int]:
    return [e.id for e in events if e.ticket.request is request and e.row == row and e.id >= 0]


def mixed_requests(draw: random.Random, count: int) -> list[Request]:
    """Return requests of all lengths, with settings of their own."""
    found = []
    for seed in range(count):
        ids = [draw.randrange(VOCAB) for _ in range(draw.randrange(1, 30))]
        settings = Settings(
            tokens=draw.randrange(1, 30),
            seed=seed,
            temperature=(0.7, 1.0)[seed % 2],
            greedy=seed % 5 == 0,
            top_k=3 if seed % 3 == 0 else None,
            top_p=0.9 if seed % 4 == 1 else None,
            repetition_penalty=1.3 if seed % 7 == 0 else 1.0,
            stop=(2,) if seed % 4 == 0 else (),
            prohibited=(1,) if seed % 3 == 1 else (),
        )
        found.append(Request(ids=ids, settings=settings, numbers=(0, 1) if seed % 6 == 0 else (0,)))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_every_row_is_its_own_undisturbed_generation(name):
    model = language_model(name)
    draw = random.Random(1)
    requests = mixed_requests(draw, 14)
    scheduler = Scheduler(model, most=5)
    events = run(scheduler, requests, draw)
    for request in requests:
        for row, number in enumerate(request.numbers):
            (alone,) = generate(model, [request.ids], request.settings, rows=[number])
            assert ids_of(events, request, row) == alone.ids
            (end,) = [e.end for e in events if e.ticket.request is request and e.row == row and e.end]
            assert end == alone.reason
    assert scheduler.batch.nbytes == 0
    assert model.training  # the models of these tests are; the mode is restored


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_decoders_of_sources_of_any_length_share_a_batch(family):
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, VOCAB, width=8, hidden=12, heads=2)).double().eval()
    draw = random.Random(0)
    requests = []
    for seed in range(9):  # long sources first: a shorter one later takes the place of a longer
        source = torch.randint(9, (1, 12 - seed))
        with torch.no_grad():
            memory = model.remember(source)
        settings = Settings(tokens=3 + seed % 4, seed=seed, begin=1)
        requests.insert(0, Request(ids=[], settings=settings, memory=memory))
    events = run(Scheduler(model, most=3), requests, draw, often=1.0)
    for request in requests:
        (alone,) = generate(model, [request.ids], request.settings, request.memory)
        assert ids_of(events, request) == alone.ids


def test_a_batch_that_mixes_up_two_rows_is_caught(monkeypatch):
    """The planted fault: a new row is written over a neighbour's place."""
    monkeypatch.setattr(live_batch, "place", lambda memory, rows, new: place(memory, [0] * len(rows), new))
    with pytest.raises(AssertionError):
        test_every_row_is_its_own_undisturbed_generation("lstm")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_kept_memory_continues_as_if_nothing_had_been_cut(name):
    model = language_model(name)
    scheduler = Scheduler(model, most=4)
    others = mixed_requests(random.Random(3), 3)
    first = Request(ids=[0, 3, 1], settings=Settings(tokens=5, greedy=True), keeps=True)
    events = run(scheduler, [*others, first], random.Random(0), often=1.0)
    (end,) = [e for e in events if e.ticket.request is first and e.end]
    assert end.memory is not None
    (alone,) = generate(model, [[0, 3, 1]], Settings(tokens=5, greedy=True))
    assert end.memory.equals(alone.memory, 1e-9)
    second = Request(ids=[2, 2], settings=Settings(tokens=6, seed=4), memory=end.memory, logits=end.logits, keeps=True)
    bare = Request(ids=[], settings=Settings(tokens=6, seed=4), memory=end.memory, logits=end.logits)
    events = run(scheduler, [second, bare, *others], random.Random(0))
    expected: Generation
    (expected,) = generate(model, [[2, 2]], second.settings, alone.memory)
    assert ids_of(events, second) == expected.ids
    (expected,) = generate(model, [[]], bare.settings, alone.memory, logits=alone.logits[None])
    assert ids_of(events, bare) == expected.ids
    assert end.memory.equals(alone.memory, 1e-9)  # a value: nobody has written into it


def test_a_prompt_without_ids_to_generate_is_only_read():
    model = language_model("ttt")
    request = Request(ids=[0, 1, 2, 3, 4], settings=Settings(tokens=0), keeps=True)
    events = run(Scheduler(model), [request], random.Random(0))
    assert [(e.id, e.end) for e in events] == [(-1, "length")]
    assert events[0].memory is not None
    (alone,) = generate(model, [request.ids], Settings(tokens=0))
    assert events[0].memory.equals(alone.memory, 1e-12)


def test_long_prompts_are_read_in_chunks_while_others_continue():
    model = language_model("lstm")
    scheduler = Scheduler(model)
    quick = Request(ids=[1], settings=Settings(tokens=8))
    long = Request(ids=[i % VOCAB for i in range(1700)], settings=Settings(tokens=2))
    scheduler.submit(quick)
    scheduler.submit(long)
    ticks = [scheduler.tick() for _ in range(3)]
    assert all(any(e.ticket.request is quick for e in tick) for tick in ticks)
    assert not any(e.ticket.request is long for tick in ticks for e in tick)
    events = [e for tick in ticks for e in tick] + run(scheduler, [], random.Random(0))
    for request in (quick, long):
        assert ids_of(events, request) == generate(model, [request.ids], request.settings)[0].ids


def test_texts_stop_strings_and_log_probabilities():
    tokenizer = rc.Tokenizer.train("char", ["abcabcabc"])
    model = rc.Markov(tokenizer.vocab_size, order=1, smoothing="maximum-likelihood")
    model.count(torch.from_numpy(tokenizer.encode("abcabcabc"))[None])
    ids = tokenizer.encode("a").tolist()
    settings = Settings(tokens=9, greedy=True)
    stopped = Request(ids=ids, settings=settings, codec=tokenizer, after="a", stop=["ab"], alternatives=2)
    plain = Request(ids=ids, settings=settings, codec=tokenizer, after="a")
    events = run(Scheduler(model), [stopped, plain], random.Random(0), often=1.0)
    text = {r: "".join(e.text for e in events if e.ticket.request is r) for r in (stopped, plain)}
    assert text == {stopped: "bc", plain: "bcabcabca"}
    assert [e.end for e in events if e.ticket.request is stopped][-1] == "stop"
    first = next(e for e in events if e.ticket.request is stopped)
    assert first.log_p == 0.0
    assert first.alternatives[0] == (tokenizer.encode("b")[0], 0.0)
    assert len(first.alternatives) == 2


def test_a_cancelled_and_a_late_request_end_and_leave_nothing_behind():
    now = [0.0]
    model = language_model("attention")
    scheduler = Scheduler(model, most=2, clock=lambda: now[0])
    running, waiting, late = (
        scheduler.submit(Request(ids=[1], settings=Settings(tokens=50), due=due)) for due in (None, None, 5.0)
    )
    scheduler.tick()
    running.cancel()
    ends = {e.ticket: e.end for e in scheduler.tick() if e.end}
    assert ends == {running: "cancelled"}
    now[0] = 6.0
    scheduler.tick()
    waiting.cancel()
    ends = {e.ticket: e.end for e in scheduler.tick() if e.end} | ends
    assert ends[waiting] == "cancelled"
    assert not scheduler.is_busy
    assert scheduler.batch.nbytes == 0
    assert late.open_rows == 0


def test_a_row_with_nan_ends_alone():
    model = language_model("lstm")
    scheduler = Scheduler(model)
    good = Request(ids=[1], settings=Settings(tokens=4))
    _, memory = model(torch.tensor([[1]]))
    poisoned = memory._map(lambda t: t * torch.nan, lambda m: m._map(lambda t: t * torch.nan, lambda n: n))
    bad = Request(ids=[1], settings=Settings(tokens=4), memory=poisoned)
    events = run(scheduler, [good, bad], random.Random(0), often=1.0)
    assert [e.end for e in events if e.ticket.request is bad] == ["broken"]
    assert ids_of(events, good) == generate(model, [[1]], good.settings)[0].ids


def test_an_error_of_the_model_ends_the_requests_and_not_the_scheduler(monkeypatch):
    model = language_model("lstm")
    scheduler = Scheduler(model)
    first = scheduler.submit(Request(ids=[1], settings=Settings(tokens=4)))
    scheduler.tick()
    with monkeypatch.context() as patch:
        patch.setattr(scheduler.batch, "read", lambda ids: (_ for _ in ()).throw(RuntimeError("out of memory")))
        events = scheduler.tick()
    assert [(e.ticket, e.end, e.problem) for e in events if e.end] == [(first, "broken", "out of memory")]
    again = Request(ids=[1], settings=Settings(tokens=4))
    assert ids_of(run(scheduler, [again], random.Random(0)), again) == generate(model, [[1]], again.settings)[0].ids


def test_a_full_queue_and_bad_requests_are_refused():
    scheduler = Scheduler(language_model("attention"), most=2, queue=2)
    for _ in range(4):  # two have places, before the first tick too
        scheduler.submit(Request(ids=[1], settings=Settings(tokens=4)))
    with pytest.raises(Full, match="2 requests wait, at most 2 may"):
        scheduler.submit(Request(ids=[1], settings=Settings(tokens=4)))
    for bad, words in [
        (Request(ids=[], settings=Settings()), "no symbols"),
        (Request(ids=[VOCAB], settings=Settings()), "prompt"),
        (Request(ids=[1], settings=Settings(tokens=60)), "60 positions"),
        (Request(ids=[1], settings=Settings(stop=(99,))), "stop"),
        (Request(ids=[1], settings=Settings(), numbers=(0, 1, 2)), "n: got 3"),
        (Request(ids=[1], settings=Settings(), numbers=(0, 1), keeps=True), "n: got 2"),
    ]:
        with pytest.raises(ContractError, match=words):
            scheduler.submit(bad)


def test_rows_can_share_a_batch_only_with_their_like():
    lstm, attention = (language_model(name)(torch.tensor([[1, 2]]))[1] for name in ("lstm", "attention"))
    longer = language_model("attention")(torch.tensor([[1, 2, 3, 4]]))[1]
    assert same_layout(attention, longer)
    assert not same_layout(lstm, attention)
    assert not same_layout(lstm, lstm.to(torch.float32))


def test_tickets_end_all_their_rows():
    scheduler = Scheduler(language_model("lstm"))
    ticket: Ticket = scheduler.submit(Request(ids=[1], settings=Settings(tokens=3), numbers=(0, 1, 2)))
    while scheduler.is_busy:
        scheduler.tick()
    assert ticket.open_rows == 0


def test_the_scheduler_needs_no_server():
    code = "import sys, recollect.generation.scheduler as s; print({'fastapi', 'pydantic', 'uvicorn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_prompts_that_take_long_are_read_in_smaller_chunks_while_rows_wait(monkeypatch):
    model = language_model("lstm")
    clock = Clock()
    scheduler = Scheduler(model, clock=clock)
    sizes: list[int] = []
    original = type(model).forward

    def forward(self, x, memory=None, *, valid=None):
        if self is model and x.shape[1] > 1:
            sizes.append(x.shape[0] * x.shape[1])
            clock.now += 0.2 if len(sizes) < 8 else 0.001
        return original(self, x, memory, valid=valid)

    monkeypatch.setattr(type(model), "forward", forward)
    quick = Request(ids=[1], settings=Settings(tokens=400))
    scheduler.submit(quick)
    scheduler.tick()
    long = [Request(ids=[i % VOCAB for i in range(3000)], settings=Settings(tokens=2, seed=s)) for s in range(12)]
    events = run(scheduler, list(long), random.Random(0), often=1.0)
    assert min(sizes) <= live_prompts.FEWEST
    assert max(sizes[8:]) > live_prompts.MOST // 2  # quick again: more at once
    for request in (long[0], long[-1]):
        assert ids_of(events, request) == generate(model, [request.ids], request.settings)[0].ids


def test_a_batch_takes_no_more_bytes_than_it_may():
    model = language_model("attention")
    draw = random.Random(2)
    requests = mixed_requests(draw, 14)
    free = Scheduler(model, most_bytes=1 << 40)
    limit = max(free.footprint.bytes_of(len(r.numbers), r.steps) for r in requests)
    scheduler = Scheduler(model, most=64, most_bytes=limit)
    most = 0
    events: list[Event] = []
    for request in requests:
        scheduler.submit(request)
    while scheduler.is_busy:
        events += scheduler.tick()
        most = max(most, scheduler.batch.nbytes)
    assert 0 < most <= limit
    for request in requests:
        for row, number in enumerate(request.numbers):
            assert (
                ids_of(events, request, row) == generate(model, [request.ids], request.settings, rows=[number])[0].ids
            )
    beyond = Request(ids=[1] * 50, settings=Settings(tokens=9), numbers=range(64))
    with pytest.raises(ContractError, match="59 symbols in all, which take"):
        scheduler.submit(beyond)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_footprint_is_what_the_memory_takes(name):
    model = language_model(name)
    found = Footprint.of(model)
    _, memory = model(torch.zeros(1, 40, dtype=torch.long))
    taken = int(footprint.SLACK * (memory.nbytes + 8 * model.width_out))
    if model.growth != "linear":
        assert found.each == 0
    elif name == "mixed":  # windows count as if they grew on
        assert found.bytes_of(1, 40) > taken
    else:
        assert found.bytes_of(1, 40) == taken


def test_a_decoder_that_fails_ends_its_own_row_alone():
    class Failing:
        def encode(self, text):
            return [1]

        def stream(self, after=""):
            return self

        def step(self, id):
            raise RuntimeError("no such symbol")

    model = language_model("lstm")
    good = Request(ids=[1], settings=Settings(tokens=4))
    bad = Request(ids=[1], settings=Settings(tokens=4), codec=Failing())
    events = run(Scheduler(model), [good, bad], random.Random(0), often=1.0)
    assert [(e.end, e.problem) for e in events if e.ticket.request is bad] == [("broken", "no such symbol")]
    assert ids_of(events, good) == generate(model, [[1]], good.settings)[0].ids


def test_a_prompt_that_cannot_be_read_ends_alone(monkeypatch):
    model = language_model("lstm")
    original = type(model).forward

    def forward(self, x, memory=None, *, valid=None):
        if self is model and (x == 3).any():
            raise RuntimeError("three")
        return original(self, x, memory, valid=valid)

    monkeypatch.setattr(type(model), "forward", forward)
    good, bad = (Request(ids=[i, 1], settings=Settings(tokens=4, prohibited=(3,))) for i in (1, 3))
    events = run(Scheduler(model), [good, bad], random.Random(0), often=1.0)
    assert [(e.end, e.problem) for e in events if e.ticket.request is bad] == [("broken", "three")]
    assert len(ids_of(events, good)) == 4


@pytest.mark.parametrize("when", [0, 1, 3])
def test_stopping_ends_every_request_wherever_it_is(when):
    scheduler = Scheduler(language_model("attention"), most=2)
    tickets = [scheduler.submit(Request(ids=[1], settings=Settings(tokens=40), numbers=(0, 1))) for _ in range(3)]
    for _ in range(when):
        scheduler.tick()
    events = scheduler.stop("broken", "gone")
    assert sorted((id(e.ticket), e.row) for e in events) == sorted((id(t), row) for t in tickets for row in (0, 1))
    assert {(e.end, e.problem) for e in events} == {("broken", "gone")}
    assert not scheduler.is_busy
    assert scheduler.batch.nbytes == 0


def test_a_fault_between_two_steps_loses_no_end(monkeypatch):
    """The rows that end in the tick that fails are told their end too: nobody waits for ever."""
    scheduler = Scheduler(language_model("attention"))
    lengths = (2, 2, 9)
    tickets = [scheduler.submit(Request(ids=[1], settings=Settings(tokens=n))) for n in lengths]
    events = scheduler.tick()
    monkeypatch.setattr(scheduler.batch, "compact", lambda: (_ for _ in ()).throw(RuntimeError("out of memory")))
    events += scheduler.tick()
    assert [[e.end for e in events if e.ticket is ticket and e.end] for ticket in tickets] == [
        ["length"],
        ["length"],
        ["broken"],
    ]
    assert not scheduler.is_busy


def test_rows_that_cannot_join_leave_the_others_in_their_places(monkeypatch):
    model = language_model("attention")
    scheduler = Scheduler(model)
    ids = [[1, 2], [3, 1], [2, 2], [1, 3], [3, 3]]
    requests = [Request(ids=one, settings=Settings(tokens=2 if i == 0 else 8)) for i, one in enumerate(ids)]
    events: list[Event] = []
    for request in requests:
        scheduler.submit(request)
    for _ in range(3):
        events += scheduler.tick()
    original = torch.cat

    def cat(tensors, *args, **kwargs):
        if tensors[0] is scheduler.batch.logits:
            raise RuntimeError("out of memory")
        return original(tensors, *args, **kwargs)

    joining = Request(ids=[1], settings=Settings(tokens=4), numbers=(0, 1))  # more rows than places are empty
    scheduler.submit(joining)
    with monkeypatch.context() as patch:
        patch.setattr(live_batch.torch, "cat", cat)
        events += scheduler.tick()
    while scheduler.is_busy:
        events += scheduler.tick()
    assert [e.end for e in events if e.ticket.request is joining] == ["broken", "broken"]
    for request, one in zip(requests, ids, strict=True):
        assert ids_of(events, request) == generate(model, [one], request.settings)[0].ids


@pytest.mark.parametrize("greedy", [False, True])
def test_logits_of_which_one_is_nan_end_their_row(greedy):
    logits = torch.zeros(2, 5)
    logits[0, 1] = torch.nan
    broken, good = choose(logits, [Chooser(Settings(greedy=greedy), number) for number in (0, 1)])
    assert broken is not None
    assert broken.id == -1
    assert good is not None
    assert 0 <= good.id < 5
