"""Batches of pairs: each pair once a round, nothing but padding beside it, and any place can be gone on from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from recollect.data.error import DataError
from recollect.data.pairs.pair_batches import PairBatches, gather_pairs, groups_by_length, pad_batch
from recollect.data.pairs.pair_rows import part_in_memory

BEGIN, END = 200, 201


def part_of(lengths):
    """Give a part whose pair i has symbols i + 1 alone, so that it is known in any batch."""
    pairs = [(np.full(s, i + 1), "", np.full(t, i + 1), "") for i, (s, t) in enumerate(lengths)]
    return part_in_memory(pairs, np.dtype(np.uint8))


LENGTHS = [((7 * i) % 3, (5 * i) % 4 + 1) for i in range(90)]
PART = part_of(LENGTHS)


def batches(part=PART, **options):
    return PairBatches(part, begin=BEGIN, end=END, **options)


def take(source, count):
    steps = iter(source)
    return [next(steps) for _ in range(count)]


def seeded(seed):
    return batches(tokens=100, seed=seed)


def one_round(source):
    return take(source, len(source.round))


def named(batch):
    return [int(row[1]) for row in batch.x]  # every target here has a symbol


def test_a_batch_holds_its_pairs_and_nothing_else():
    batch = gather_pairs(part_of([(2, 1), (0, 3)]), np.array([0, 1]), BEGIN, END)
    assert batch.source.tolist() == [[1, 1], [0, 0]]
    assert batch.source_valid.tolist() == [[True, True], [False, False]]
    assert batch.x.tolist() == [[BEGIN, 1, 0, 0], [BEGIN, 2, 2, 2]]
    assert batch.y.tolist() == [[1, END, 0, 0], [2, 2, 2, END]]
    assert batch.valid.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.x.dtype == batch.source.dtype == torch.int64


def test_nothing_is_padded_where_all_are_alike_or_empty():
    batch = gather_pairs(part_of([(2, 1), (2, 1)]), np.array([1, 0]), BEGIN, END)
    assert batch.source_valid is None
    assert batch.valid is None
    empty = gather_pairs(part_of([(0, 0)]), np.array([0]), BEGIN, END)
    assert empty.source.shape == (1, 0)
    assert (empty.x.tolist(), empty.y.tolist()) == ([[BEGIN]], [[END]])


@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=1, max_size=60),
    tokens=st.integers(1, 200),
    seed=st.integers(0, 5),
)
def test_every_pair_comes_once_a_round_within_the_budget(lengths, tokens, seed):
    part = part_of(lengths)
    source = batches(part, tokens=tokens, seed=seed)
    for _ in range(2):
        seen = one_round(source)
        assert sorted(name for batch in seen for name in named(batch)) == list(range(1, len(lengths) + 1))
        predicted = sum(batch.y.numel() if batch.valid is None else int(batch.valid.sum()) for batch in seen)
        assert predicted == source.predicted == sum(target + 1 for _, target in lengths)
        for batch in seen:
            assert len(batch.x) == 1 or batch.source.numel() + batch.x.numel() <= tokens


def test_a_fixed_number_of_pairs():
    seen = one_round(batches(batch_size=8))
    assert sorted(len(batch.x) for batch in seen) == [2] + [8] * 11
    assert sorted(name for batch in seen for name in named(batch)) == list(range(1, 91))


def test_pairs_of_like_length_lie_together():
    groups = groups_by_length(PART, np.arange(90), batch_size=10)
    longest = [PART.targets.lengths[group].max() for group in groups]
    shortest = [PART.targets.lengths[group].min() for group in groups]
    assert all(a <= b for a, b in zip(longest, shortest[1:], strict=False))


def test_rounds_differ_and_seeds_decide_them():
    first = [[named(batch) for batch in one_round(source)] for source in map(seeded, (0, 0, 1))]
    assert first[0] == first[1] != first[2]
    source = seeded(0)
    rounds = [[named(batch) for batch in one_round(source)] for _ in range(2)]
    assert rounds[0] != rounds[1]
    assert {frozenset(names) for names in rounds[0]} != {frozenset(names) for names in rounds[1]}
    assert source.epoch == 1


@pytest.mark.parametrize("done", [0, 3, 17, 40])
def test_a_place_can_be_gone_on_from_exactly(done):
    whole = take(seeded(3), done + 30)
    before = seeded(3)
    take(before, done)
    again = seeded(0)
    again.load_state(json.loads(json.dumps(before.state())))
    for a, b in zip(whole[done:], take(again, 30), strict=True):
        assert torch.equal(a.source, b.source)
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
    assert again.state() == take_state(done + 30)


def take_state(count):
    source = seeded(3)
    take(source, count)
    return source.state()


def test_no_pairs_are_refused():
    with pytest.raises(DataError, match="got 0 pairs, expected 1 or more"):
        batches(part_of([]))


def test_a_padded_batch_is_the_batch_and_nothing_real_beside_it():
    batch = gather_pairs(part_of([(2, 1), (0, 3), (9, 7)]), np.arange(3), BEGIN, END)
    padded = pad_batch(batch, rows=4, steps=8)
    assert padded.source.shape == padded.source_valid.shape == (4, 16)
    assert padded.x.shape == padded.y.shape == padded.valid.shape == (4, 8)
    assert padded.valid.sum() == batch.valid.sum()
    assert padded.source_valid.sum() == batch.source_valid.sum()
    for name in ("source", "source_valid", "x", "y", "valid"):
        before = getattr(batch, name)
        assert torch.equal(getattr(padded, name)[: before.shape[0], : before.shape[1]], before)


def test_a_padded_batch_has_masks_also_where_none_were_needed():
    batch = gather_pairs(part_of([(2, 1), (2, 1)]), np.arange(2), BEGIN, END)
    assert batch.valid is None
    assert batch.source_valid is None
    padded = pad_batch(batch)
    assert padded.source_valid.sum(1).tolist() == padded.valid.sum(1).tolist() == [2, 2] + [0] * 14
    again = pad_batch(padded)
    assert all(torch.equal(getattr(again, name), getattr(padded, name)) for name in ("source", "x", "y", "valid"))


def test_empty_sources_are_padded_to_one_step_and_more():
    batch = gather_pairs(part_of([(0, 1)]), np.arange(1), BEGIN, END)
    assert pad_batch(batch, rows=1, steps=4).source_valid.tolist() == [[False] * 4]


def test_pictures_are_padded_by_rows_alone():
    batch = gather_pairs(part_of([(1, 3)] * 3), np.arange(3), BEGIN, END)
    pictures = torch.ones(3, 5, 6, 2, dtype=torch.uint8)
    padded = pad_batch(replace(batch, source=pictures))
    assert padded.source.shape == (16, 5, 6, 2)
    assert torch.equal(padded.source[:3], pictures)
    assert padded.source_valid is None
