"""Beam search: equal to greedy, to exhaustive search and to a slow version written for reading."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, strategies as st

from generate_models import FAMILIES, VOCAB, WIDTH, language_model, next_logprobs, ragged, translator
from recollect.core.validate import ContractError
from recollect.generation import prefill as reading
from recollect.generation.beam import Hypothesis, beam, completed_ngrams, top
from recollect.generation.log_probability import score
from recollect.generation.sampling import generate
from recollect.generation.settings import Search, Settings

SEARCHED = ["lstm", "attention", "ttt"]
PENALTIES = [("gnmt", 0.0), ("gnmt", 0.6), ("power", 1.0), ("power", 0.5)]


def same(found: list[Hypothesis], want: list[Hypothesis]) -> None:
    assert [(h.ids, h.reason) for h in found] == [(h.ids, h.reason) for h in want]
    for a, b in zip(found, want, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-9)
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-9)


def penalty(search: Search, length: int) -> float:
    return ((5 + length) / 6) ** search.alpha if search.length == "gnmt" else length**search.alpha


def repeats(ids: list[int], n: int) -> bool:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return bool(grams) and grams[-1] in grams[:-1]


def slow_beam(model, prompt: list[int], search: Search) -> list[Hypothesis]:
    """Search for one prompt, in lists, reading everything anew for every hypothesis."""
    open_, pool = [([], [])], []
    for step in range(search.tokens):
        candidates = []
        for w, (ids, logprobs) in enumerate(open_):
            for i, p in enumerate(next_logprobs(model, prompt + ids).tolist()):
                is_early = i in search.end and step < search.min_tokens
                is_repeat = search.no_repeat is not None and repeats([*prompt, *ids, i], search.no_repeat)
                if not (is_early or is_repeat or i in search.prohibited):
                    candidates.append((-sum(logprobs) - p, w, i, [*ids, i], [*logprobs, p]))
        candidates.sort()
        is_last = step + 1 == search.tokens
        for total, _, i, ids, logprobs in candidates[: search.width]:
            if i in search.end or is_last:
                reason = "stop" if i in search.end else "length"
                pool.append(Hypothesis(ids, logprobs, -total / penalty(search, len(ids)), reason))
        pool = sorted(pool, key=lambda h: -h.score)[: search.width]
        open_ = [(ids, logprobs) for _, _, i, ids, logprobs in candidates if i not in search.end][: search.width]
        if not open_:
            break
        if len(pool) == search.width:
            length = search.tokens if search.patience == "exact" else step + 1
            if search.patience == "first" or sum(open_[0][1]) / penalty(search, length) <= pool[-1].score:
                break
    return pool[: search.nbest]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("length", "alpha"), PENALTIES)
def test_width_1_is_greedy(name, length, alpha):
    model, prompts = language_model(name), ragged(6, seed=1)
    found = beam(model, prompts, Search(width=1, tokens=10, end=[0, 4], length=length, alpha=alpha))
    greedy = generate(model, prompts, Settings(tokens=10, stop=[0, 4], greedy=True))
    assert [h.ids for [h] in found] == [g.ids for g in greedy]
    for [h], g in zip(found, greedy, strict=True):
        assert h.logprobs == pytest.approx(g.logprobs, abs=1e-9)
        assert h.reason == g.reason


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize(("length", "alpha"), PENALTIES)
@pytest.mark.parametrize("patience", ["first", "exact"])
def test_as_wide_as_the_space_is_exhaustive_search(name, length, alpha, patience):
    model, end, tokens = language_model(name, vocab_size=3, seed=2), 0, 4
    search = Search(width=3**tokens, tokens=tokens, end=[end], nbest=10, length=length, alpha=alpha, patience=patience)
    every = []
    for size in range(1, tokens + 1):
        for ids in product(range(3), repeat=size):
            if end not in ids[:-1] and (ids[-1] == end or size == tokens):
                logprobs = score(model, torch.tensor([ids]), begin=1)[0].tolist()
                reason = "stop" if ids[-1] == end else "length"
                every.append(Hypothesis(list(ids), logprobs, sum(logprobs) / penalty(search, size), reason))
    every.sort(key=lambda h: -h.score)
    same(beam(model, [[1]], search)[0], every[:10])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "search",
    [
        Search(width=3, nbest=3, tokens=7, end=[0]),
        Search(width=4, nbest=4, tokens=6, end=[0, 2], patience="exact", length="power", alpha=1.0),
        Search(width=2, nbest=2, tokens=8, end=[5], patience="current", min_tokens=3),
        Search(width=3, nbest=2, tokens=8, end=[1], no_repeat=2, prohibited=[6], alpha=0.0),
        Search(width=9, nbest=9, tokens=3, end=[1], no_repeat=1),
    ],
)
def test_equals_the_slow_version(name, search):
    model, prompts = language_model(name, seed=1), ragged(3, seed=3, longest=4)
    for found, prompt in zip(beam(model, prompts, search), prompts, strict=True):
        same(found, slow_beam(model, prompt, search))


@pytest.mark.parametrize("name", [*SEARCHED, "mixed", "rotary window"])
def test_alone_equals_a_batch_of_64_in_any_order(name):
    model, prompts = language_model(name), ragged(64, seed=4)
    search = Search(width=4, nbest=4, tokens=8, end=[0, 3])
    together = beam(model, prompts, search)
    backwards = beam(model, prompts[::-1], search)[::-1]
    assert len({len(h.ids) for best in together for h in best}) > 3
    for i, (a, b) in enumerate(zip(together, backwards, strict=True)):
        same(a, b)
        if i % 8 == 0:
            same(beam(model, [prompts[i]], search)[0], a)


@pytest.mark.parametrize("name", SEARCHED)
def test_scores_are_those_of_the_model(name):
    model, prompts = language_model(name), ragged(4, seed=5)
    search = Search(width=5, nbest=5, tokens=9, end=[2], alpha=0.8)
    for prompt, best in zip(prompts, beam(model, prompts, search), strict=True):
        assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)
        assert len({tuple(h.ids) for h in best}) == 5
        for h in best:
            ids = torch.tensor([prompt + h.ids])
            want = score(model, ids[:, 1:], begin=ids[:, 0])[0, len(prompt) - 1 :]
            assert h.logprobs == pytest.approx(want.tolist(), abs=1e-9)
            assert h.score == pytest.approx(want.sum().item() / penalty(search, len(h.ids)), abs=1e-9)


def test_a_source_stays_with_its_beams():
    model, remember = translator()
    torch.manual_seed(0)
    source, valid = torch.randn(6, 5, WIDTH).double(), torch.arange(5) < torch.tensor([[5], [2], [0], [4], [1], [3]])
    search = Search(width=4, nbest=4, tokens=8, end=[6], begin=0)
    together = beam(model, [[]] * 6, search, remember(source, valid))
    for i in range(6):
        one = slice(i, i + 1)
        same(beam(model, [[]], search, remember(source[one], valid[one]))[0], together[i])
    assert len({tuple(best[0].ids) for best in together}) > 1


def test_a_given_memory_goes_on_and_is_left_as_it_was():
    model = language_model("mixed")
    search = Search(width=3, nbest=3, tokens=6, end=[0])
    start = generate(model, [[1, 2]], Settings(tokens=0))[0]
    given = start.memory.reserve(30, in_place=True)
    before = {key: t.clone() for key, t in given.tensors().items()}
    want = beam(model, [[1, 2, 3]], search)[0]
    same(beam(model, [[3]], search, given)[0], want)
    assert all(torch.equal(t, before[key]) for key, t in given.tensors().items())
    whole = beam(model, [[1, 2]], search)[0]
    same(beam(model, [[]], search, start.memory, logits=start.logits[None])[0], whole)


def test_room_does_not_matter(monkeypatch):
    model, prompts = language_model("attention"), ragged(5, seed=6)
    search = Search(width=3, nbest=3, tokens=12, end=[0])
    want = beam(model, prompts, search)
    monkeypatch.setattr(reading, "RESERVED", 2)
    for a, b in zip(beam(model, prompts, search), want, strict=True):
        same(a, b)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_is_said_twice(n):
    model, prompts = language_model("lstm"), ragged(5, seed=7, longest=3)
    for prompt, best in zip(prompts, beam(model, prompts, Search(tokens=12, no_repeat=n, nbest=5)), strict=True):
        for h in best:
            said = prompt + h.ids
            assert not any(repeats(said[:end], n) for end in range(len(prompt) + 1, len(said) + 1))


def test_where_nothing_may_follow_the_search_gives_what_there_was():
    [best] = beam(language_model("lstm", vocab_size=3), [[0]], Search(width=2, tokens=5, no_repeat=1, nbest=2))
    assert sorted(h.ids for h in best) == [[1, 2], [2, 1]]
    assert {h.reason for h in best} == {"blocked"}
    [best] = beam(language_model("lstm", vocab_size=3), [[0]], Search(width=2, tokens=3, no_repeat=1))
    assert best[0].reason == "blocked"


def test_minimum_length_comes_before_an_end():
    model, prompts = language_model("lstm"), ragged(5, seed=8)
    ended = Search(width=3, nbest=3, tokens=9, min_tokens=4, end=[0, 1, 2])
    for best in beam(model, prompts, ended):
        assert all(len(h.ids) > 4 and not {0, 1, 2} & set(h.ids[:4]) for h in best)


def test_no_prompts_and_flags_restored():
    model = language_model("lstm").train()
    assert beam(model, []) == []
    beam(model, [[1]], Search(tokens=2))
    assert all(m.training for m in model.modules())


def test_ties_go_to_the_lower_id():
    model = language_model("lstm")
    with torch.no_grad():
        for p in model[-1].parameters():
            p.zero_()
    [best] = beam(model, [[1]], Search(width=3, nbest=3, tokens=1))
    assert [h.ids for h in best] == [[0], [1], [2]]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 9))
def test_top_is_a_stable_sort(rows, count):
    values = torch.tensor(rows, dtype=torch.float64)
    found, index = top(values, count)
    for row, f, i in zip(rows, found.tolist(), index.tolist(), strict=True):
        want = sorted(range(6), key=lambda place: (-row[place], place))[:count]
        assert i == want
        assert f == [row[place] for place in want]


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4), st.integers(0, 3))
def test_completed_ngrams_are_those_of_the_definition(ids, n, blank):
    history = torch.tensor([[-1] * blank + ids], dtype=torch.long)
    want = [repeats([*ids, i], n) for i in range(5)]
    assert completed_ngrams(history, n, 5)[0].tolist() == want


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width: got 0"),
        ({"tokens": 0}, "tokens: got 0"),
        ({"nbest": 6}, "nbest: got 6, expected at most width, 5"),
        ({"min_tokens": 101}, "min_tokens: got 101, expected at most tokens, 100"),
        ({"alpha": -1}, "alpha: got -1, expected 0 or more"),
        ({"length": "log"}, "length: got 'log', expected 'gnmt' or 'power'"),
        ({"patience": "long"}, "patience: got 'long'"),
        ({"no_repeat": 0}, "no_repeat: got 0"),
        ({"end": 3}, "end: got 3, expected a list of ids"),
    ],
)
def test_search_refuses_with_the_reason(wrong, message):
    with pytest.raises(ContractError) as caught:
        Search(**wrong)
    assert str(caught.value).startswith(message)


def test_bad_arguments_are_refused_with_the_reason():
    with pytest.raises(ContractError, match=f"end: got {VOCAB}, expected ids from 0 to {VOCAB - 1}"):
        beam(language_model("lstm"), [[1]], Search(end=[VOCAB]))
    with pytest.raises(ContractError, match=r"prompts\[0\]: got 2 ids and 100 more to come, expected at most 60"):
        beam(language_model("attention"), [[1, 2]])
