"""Rows with hidden symbols: shares, places, marks, pairs of texts, and the same rows again from a saved position."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import recollect as rc
from recollect.data.text.masked_batches import IGNORED, MaskedWindows, Masking, masked_rows

TOKENIZER = rc.FramedTokenizer(rc.Tokenizer.train("char", ["abcdefghijklmnopqrst"]))
IDS = np.arange(4000) % 20
ENDS = np.array([1500, 1510, 4000])


def rows_of(batch):
    """Return the rows before anything was hidden."""
    x = batch.x.clone()
    is_known = batch.y != IGNORED
    rows = torch.arange(len(x))[:, None].expand_as(batch.places)
    x[rows[is_known], batch.places[is_known]] = batch.y[is_known]
    return x


@pytest.mark.parametrize("is_pair", [False, True])
def test_rows_have_marks_and_a_text_that_continues(is_pair):
    masking = Masking(TOKENIZER, steps=30, is_pair=is_pair)
    batch = next(iter(MaskedWindows(IDS, ENDS, masking, 64)))
    valid = torch.ones_like(batch.x, dtype=torch.bool) if batch.valid is None else batch.valid
    for x, seen, segments, follows in zip(
        rows_of(batch),
        valid,
        torch.zeros_like(batch.x) if batch.segments is None else batch.segments,
        torch.full((64,), IGNORED) if batch.follows is None else batch.follows,
        strict=True,
    ):
        row, of_text = x[seen].tolist(), segments[seen].tolist()
        assert row[0] == TOKENIZER.begin
        assert row[-1] == TOKENIZER.end
        assert row.count(TOKENIZER.end) == (2 if is_pair else 1)
        middle = row.index(TOKENIZER.end)
        first, second = row[1:middle], row[middle + 1 : -1]
        assert all((b - a) % 20 == 1 for text in (first, second) for a, b in pairwise(text))
        assert of_text == [0] * (middle + 1) + [1] * (len(row) - middle - 1)
        if follows == 0:
            assert (second[0] - first[-1]) % 20 == 1
    if is_pair:
        assert 0.25 < float((batch.follows == 1).float().mean()) < 0.75


def test_of_the_predicted_symbols_eighty_percent_are_hidden_ten_replaced_ten_left():
    batch = next(iter(MaskedWindows(IDS, None, Masking(TOKENIZER, steps=102), 500)))
    assert batch.places.shape == (500, 15)  # exactly 15 % of 100 symbols in every row
    assert batch.count == 7500
    shown = batch.x.gather(1, batch.places)
    is_hidden = shown == TOKENIZER.mask
    assert float(is_hidden.double().mean()) == pytest.approx(0.8, abs=0.02)
    is_left = shown == batch.y
    assert float(is_left.double().mean()) == pytest.approx(0.1 + 0.1 / 21, abs=0.015)  # a random symbol may be the same
    assert int((batch.x == TOKENIZER.mask).sum()) == int(is_hidden.sum())
    assert all(len(set(row)) == 15 for row in batch.places.tolist())


@given(lengths=st.lists(st.integers(2, 60), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_symbol_of_a_part_is_in_one_row_whatever_its_documents(lengths, seed):
    ends = np.cumsum(lengths)
    ids = np.arange(ends[-1]) % 20
    batches = list(masked_rows(ids, ends, Masking(TOKENIZER, steps=17), 4, seed=seed))
    found = []
    for batch in batches:
        x = rows_of(batch)
        valid = torch.ones_like(x, dtype=torch.bool) if batch.valid is None else batch.valid
        found += [i for row, seen in zip(x, valid, strict=True) for i in row[seen].tolist() if i < 20]
        assert batch.count == sum(max(round(0.15 * (int(seen.sum()) - 2)), 1) for seen in valid)
    assert sorted(found) == sorted(ids.tolist())


def test_masks_are_drawn_anew_and_a_position_gives_the_same_again():
    source = MaskedWindows(IDS, ENDS, Masking(TOKENIZER, steps=20, is_pair=True), 8, seed=3)
    batches = iter(source)
    first = next(batches)
    state = source.state()
    second = next(batches)
    assert not torch.equal(first.places, second.places)
    again = MaskedWindows(IDS, ENDS, Masking(TOKENIZER, steps=20, is_pair=True), 8, seed=99)
    again.load_state(state)
    third = next(iter(again))
    for name in ("x", "segments", "places", "y", "follows"):
        assert torch.equal(getattr(second, name), getattr(third, name))


def test_a_framed_tokenizer_writes_masks_where_symbols_stand(tmp_path):
    words = rc.FramedTokenizer(rc.Tokenizer.train("word", ["I made a small deposit\n"] * 3))
    ids = words.encode("I made a [MASK] deposit").tolist()
    assert ids[0] == words.begin
    assert ids[-1] == words.end
    assert ids.count(words.mask) == 1
    assert len(ids) == 7
    assert words.decode(ids) == "I made a [MASK] deposit"
    words.save(tmp_path / "tokenizer.json")
    assert (
        rc.FramedTokenizer.load(tmp_path / "tokenizer.json").encode("a small [MASK]").tolist()
        == words.encode("a small [MASK]").tolist()
    )
    rc.Tokenizer("byte").save(tmp_path / "plain.json")
    with pytest.raises(ValueError, match=r"a tokenizer without \[MASK\]"):
        rc.FramedTokenizer.load(tmp_path / "plain.json")
