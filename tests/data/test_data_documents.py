"""Documents: nothing is read or predicted across an end, everything else is, once, and memory begins anew."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from recollect.data.error import DataError
from recollect.data.text.batches import Streams, Windows, gather, reset_rows
from recollect.data.text.documents import Documents
from recollect.evaluation.likelihood import loss_by_position, score_carried, score_windows
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.tasks.language import count_symbols

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=12).filter(lambda lengths: max(lengths) > 1)


def text(lengths):
    """Ids that tell their place, and the documents' ends."""
    return np.arange(sum(lengths)), np.cumsum(lengths)


def pairs(ends):
    """All pairs of neighbours that are in one document: what can be predicted."""
    return [(i, i + 1) for start, end in zip([0, *ends[:-1]], ends, strict=True) for i in range(start, end - 1)]


def real(batch):
    valid = torch.ones_like(batch.x, dtype=torch.bool) if batch.valid is None else batch.valid
    assert (batch.x[~valid] == 0).all()
    return [(x[v].tolist(), y[v].tolist()) for x, y, v in zip(batch.x, batch.y, valid, strict=True)]


# ---- streams -------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, rows=st.integers(1, 5), steps=st.integers(1, 7), is_random=st.booleans())
def test_a_round_of_streams_reads_every_pair_once_and_begins_anew_at_starts(lengths, rows, steps, is_random):
    ids, ends = text(lengths)
    rows = min(rows, len(ids) - 1)
    streams = Streams(ids, rows, steps, ends, (lambda draw: int(draw.integers(1, 9))) if is_random else None)
    borders = {int(place) for place in streams.starts}
    begins = {0, *ends.tolist()} | borders
    seen, source, last = [], iter(streams), [None] * rows
    while len(seen) < streams.predicted:
        batch = next(source)
        stretches = real(batch)
        assert batch.x.shape[1] == max(len(x) for x, _ in stretches) > 0
        for row, (x, y) in enumerate(stretches):
            seen += list(zip(x, y, strict=True))
            if x and batch.is_start[row]:
                assert x[0] in begins
            elif x:
                assert x[0] == last[row]
            last[row] = y[-1] if y else last[row]
    assert sorted(seen) == pairs(ends)
    assert next(source).is_start.all()


def test_rows_of_one_document_are_read_without_a_mask():
    seen = [batch for batch, _ in zip(Streams(np.arange(1000), 4, 30), range(9), strict=False)]
    assert [batch.valid is None for batch in seen] == [True] * 8 + [False]  # rows of 249 and 250 symbols
    assert [int(batch.is_start.sum()) for batch in seen] == [4] + [0] * 8
    assert sum(len(x) for batch in seen for x, _ in real(batch)) == 999


def test_the_lengths_of_stretches_are_drawn_and_gone_on_with():
    def make():
        return Streams(np.arange(500), 3, 10, np.array([100, 500]), lambda draw: int(draw.integers(1, 20)), seed=5)

    whole = [batch for batch, _ in zip(make(), range(40), strict=False)]
    assert len({batch.x.shape[1] for batch in whole}) > 8
    first, again = make(), make()
    for _ in zip(range(17), first, strict=False):
        pass
    again.load_state(json.loads(json.dumps(first.state())))
    for a, b in zip(whole[17:], again, strict=False):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.is_start, b.is_start)


# ---- windows -------------------------------------------------------------------------------------------


def draw_windows(lengths, steps, count):
    ids, ends = text(lengths)
    (batch,) = (batch for batch, _ in zip(Windows(ids, count, steps, ends), range(1), strict=False))
    return [(x[0], y[-1]) for x, y in real(batch)], ends


def test_windows_stay_in_documents_and_long_ones_are_whole():
    seen, ends = draw_windows([1, 3, 20, 2, 1, 9], 6, 3000)
    starts = {1, 24, *range(4, 4 + 14), *range(27, 27 + 3)}
    assert {first for first, _ in seen} == starts
    for first, last in seen:
        end = ends[np.searchsorted(ends, first, side="right")]
        assert last == min(first + 6, end - 1)


def test_windows_of_a_document_are_alike_and_documents_follow_their_symbols():
    seen, _ = draw_windows([31, 3, 16], 10, 40_000)
    counts = Counter(first for first, _ in seen)
    shares = {0: 30, 31: 10, 34: 15}  # by document: symbols predicted, at least those of a whole window
    for start, choices in ((0, 21), (31, 1), (34, 6)):
        for place in range(start, start + choices):
            assert counts[place] / 40_000 == pytest.approx(shares[start] / 55 / choices, rel=0.15)


def test_texts_without_anything_to_predict_are_refused():
    for kind in (Streams, Windows):
        with pytest.raises(DataError, match="got 9 documents of one symbol each, expected one of two or more"):
            kind(np.arange(9), 2, 3, ends=np.arange(1, 10))
    with pytest.raises(DataError, match="the last document ends at 5, expected 9"):
        Documents(np.arange(9), np.array([5]))


# ---- evaluation ----------------------------------------------------------------------------------------

VOCAB = 6
IDS = np.random.default_rng(0).integers(0, VOCAB, 150)
ENDS = np.array([1, 40, 43, 44, 97, 99, 120, 150])


def model(family, **options):
    torch.manual_seed(0)
    made = LanguageModel(LanguageConfig(family, VOCAB, width=8, layers=1, heads=2, **options)).double()
    if family == "markov":
        count_symbols(made, IDS, ends=ENDS)
    return made


def documents():
    return [IDS[start:end] for start, end in zip([0, *ENDS[:-1]], ENDS, strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("score", [score_carried, score_windows])
def test_a_text_of_documents_scores_as_its_documents(family, score):
    made = model(family)
    one_by_one = [score(made, document, 7) for document in documents()]
    for size in (1, 3, 64):
        whole = score(made, IDS, 7, batch_size=size, ends=ENDS)
        assert whole.tokens == len(IDS) - len(ENDS) == sum(s.tokens for s in one_by_one)
        assert whole.nats == pytest.approx(sum(s.nats for s in one_by_one), rel=1e-9)


def test_the_loss_by_position_is_that_of_windows_within_documents():
    made = model("gru")
    losses = loss_by_position(made, IDS, 30, windows=200, ends=ENDS)
    assert len(losses) == 30
    firsts = {score_windows(made, d[i : i + 2]).nats for d in documents() for i in range(len(d) - 1)}
    assert min(firsts) < losses[0] < max(firsts)
    longest = score_carried(made, IDS[44:97], 30)
    assert len(loss_by_position(made, IDS[44:97], 60)) == 52
    assert np.mean(loss_by_position(made, IDS[44:97], 60)) == pytest.approx(longest.loss, rel=1e-9)
    assert loss_by_position(made, IDS[:1]) == []


def test_counting_stops_at_documents():
    apart = model("markov")
    again = LanguageModel(LanguageConfig("markov", VOCAB)).double()
    for document in documents():
        count_symbols(again, document)
    for name, buffer in again.named_buffers():
        assert torch.equal(buffer, dict(apart.named_buffers())[name])


# ---- memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*FAMILIES, "windowed"])
def test_rows_that_start_take_fresh_memory(family):
    made = model(family) if family != "windowed" else model("transformer", window=3)
    x = torch.randint(VOCAB, (3, 5), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        memory, fresh = made(x)[1], made.initial_memory(3)
        renewed = reset_rows(memory, fresh, torch.tensor([False, True, False]))
        assert renewed.select([0, 2]).equals(memory.select([0, 2]))
        assert renewed.select([1]).equals(fresh.select([1]))
        after = made(x, renewed)[0]
        assert torch.allclose(after[1], made(x)[0][1])
        assert torch.allclose(after[[0, 2]], made(x, memory)[0][[0, 2]])
    assert reset_rows(memory, fresh, torch.zeros(3, dtype=torch.bool)) is memory
    assert reset_rows(memory, fresh, torch.ones(3, dtype=torch.bool)) is fresh


@pytest.mark.parametrize("family", ["gru", "ttt-linear", "linear-attention"])
def test_streams_with_renewed_memory_have_the_loss_of_documents_read_alone(family):
    made, done, nats = model(family), 0, 0.0
    streams, memory = Streams(IDS, 1, 7, ENDS), made.initial_memory(1)
    for batch in streams:
        memory = reset_rows(memory, made.initial_memory(1), batch.is_start)
        logits, memory = made(batch.x, memory)
        nats += float(F.cross_entropy(logits[0], batch.y[0], reduction="sum").detach())
        done += batch.y.numel()
        if done == streams.predicted:
            break
    assert nats == pytest.approx(score_carried(made, IDS, 7, ends=ENDS).nats, rel=1e-9)


def test_gathered_rows_end_in_zeros():
    x, y, valid = gather(np.arange(10), np.array([2, 8]), np.array([3, 1]))
    assert x.tolist() == [[2, 3, 4], [8, 0, 0]]
    assert y.tolist() == [[3, 4, 5], [9, 0, 0]]
    assert valid.tolist() == [[True] * 3, [True, False, False]]
