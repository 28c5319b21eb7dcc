"""The counting layer against slow, readable versions of each smoothing."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from slow_kneser_ney import BEGIN, SlowKneserNey, estimate_discounts
from torch import Tensor

from recollect.core.validate import ContractError
from recollect.layers.ngram.counts import count_ngrams
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.recent import Recent
from recollect.layers.ngram.smoothing import FALLBACK, SMOOTHINGS, discounts

V, END = 12, 11
ORDERS = range(5)


def rows_of(text: str, seed: int = 0) -> list[list[int]]:
    """Rows with a likeness to language: frequent and rare symbols, each pulled towards a follower of its own."""
    count, longest = {"tiny": (4, 5), "large": (60, 40)}[text]
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row: list[int] = []
        for _ in range(draw.integers(0, longest + 1)):
            pulled = row and draw.random() < 0.6
            row.append((3 * row[-1] + 1) % END if pulled else int(END * draw.random() ** 3))
        rows.append(row)
    return [*rows, []]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and mask; what lies in the padding is no id at all."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [-999] * (longest - len(row)) for row in rows])
    return ids, torch.arange(longest) < torch.tensor([[len(row)] for row in rows])


def counted(rows: list[list[int]], order: int, smoothing: str = "kneser-ney", end: int | None = None) -> Markov:
    model = Markov(V, order, smoothing=smoothing)  # type: ignore[arg-type]
    model.count(*padded(rows), end=end)
    return model


def with_end(rows: list[list[int]], end: int | None) -> list[list[int]]:
    return rows if end is None else [[*row, end] for row in rows]


# ---- Kneser-Ney against the slow version -----------------------------------------------------------


@pytest.mark.parametrize("text", ["tiny", "large"])
def test_discounts_are_estimated_or_fall_back(text: str) -> None:
    slow = SlowKneserNey(rows_of(text), V, 2)
    assert [slow.discounts[n] == list(FALLBACK) for n in (2, 3)] == [text == "tiny"] * 2


@pytest.mark.parametrize(
    "counts", [[], [1, 1, 2], [1, 1, 2, 3], [1] * 9 + [2] * 4 + [3] * 2 + [4, 5], [1, 2, 3, 3, 3, 3]]
)
def test_discounts_equal_the_slow_ones(counts: list[int]) -> None:
    np.testing.assert_allclose(discounts(np.array(counts, dtype=np.int64)), estimate_discounts(counts))


@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("text", ["tiny", "large"])
@pytest.mark.parametrize("order", ORDERS)
def test_scores_equal_slow_kneser_ney(order: int, text: str, end: int | None) -> None:
    model = counted(rows_of(text), order, end=end)
    slow = SlowKneserNey(with_end(rows_of(text), end), V, order)
    asked = rows_of("tiny", seed=1) + rows_of("large", seed=2)[:6]
    scores = model.score(*padded(asked), end=end)
    assert scores.dtype == torch.float64
    assert scores.shape == (len(asked), max(map(len, asked)) + (end is not None))
    for row, symbols in zip(scores.tolist(), with_end(asked, end), strict=True):
        wanted = [math.log(slow.probability(w, (BEGIN, *symbols[:t]))) for t, w in enumerate(symbols)]
        assert row[: len(symbols)] == pytest.approx(wanted, rel=1e-12)
        assert not any(row[len(symbols) :])


@pytest.mark.parametrize("text", ["tiny", "large"])
@pytest.mark.parametrize("order", ORDERS)
def test_distributions_equal_slow_kneser_ney(order: int, text: str) -> None:
    model = counted(rows_of(text), order, end=END)
    slow = SlowKneserNey(with_end(rows_of(text), END), V, order)
    asked = rows_of("tiny", seed=1)
    ids, valid = padded(asked)
    output, _ = model(ids, valid=valid)
    for b, row in enumerate(asked):
        for t in range(len(row)):
            wanted = [slow.probability(w, (BEGIN, *row[: t + 1])) for w in range(V)]
            assert output[b, t].exp().tolist() == pytest.approx(wanted, rel=1e-12)
        assert not output[b, len(row) :].any()


# ---- the other smoothings, and what holds for all of them ------------------------------------------


def slow_interpolation(rows: list[list[int]], symbol: int, context: tuple[object, ...], smoothing: str) -> float:
    """p(symbol | context) by going through the whole text once for every context length."""
    shorter = slow_interpolation(rows, symbol, context[1:], smoothing) if context else 1 / V
    after: Counter[int] = Counter()
    for row in rows:
        line = (BEGIN, *row)
        for t in range(max(1, len(context)), len(line)):
            if line[t - len(context) : t] == context:
                after[line[t]] += 1  # type: ignore[index]
    if not after:
        return shorter
    if smoothing == "maximum-likelihood":
        return after[symbol] / after.total()
    return (after[symbol] + len(after) * shorter) / (after.total() + len(after))


@pytest.mark.parametrize("smoothing", ["witten-bell", "maximum-likelihood"])
@pytest.mark.parametrize("order", [0, 1, 3])
def test_scores_equal_slow_interpolation(order: int, smoothing: str) -> None:
    rows, asked = rows_of("large")[:20], rows_of("tiny", seed=1)
    scores = counted(rows, order, smoothing, END).score(*padded(asked), end=END)
    rows = with_end(rows, END)
    for row, symbols in zip(scores.exp().tolist(), with_end(asked, END), strict=True):
        for t, symbol in enumerate(symbols):
            context = (BEGIN, *symbols[:t])[-order:] if order else ()
            assert row[t] == pytest.approx(slow_interpolation(rows, symbol, context, smoothing), rel=1e-12)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_forward_agrees_with_score_and_sums_to_one(order: int, smoothing: str) -> None:
    model = counted(rows_of("large"), order, smoothing)
    ids = torch.randint(V, (5, 30), generator=torch.Generator().manual_seed(3))
    output, _ = model(ids)
    picked = output[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(picked, model.score(ids)[:, 1:], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(output.exp().sum(2), torch.ones(5, 30, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_uncounted_model_is_uniform(smoothing: str) -> None:
    model = Markov(V, 2, smoothing=smoothing)  # type: ignore[arg-type]
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(ids)[0], torch.full((1, 3, V), -math.log(V), dtype=torch.float64))
    torch.testing.assert_close(model.score(ids), torch.full((1, 3), -math.log(V), dtype=torch.float64))


def test_unseen_is_impossible_under_maximum_likelihood() -> None:
    model = Markov(3, 1, smoothing="maximum-likelihood")
    model.count(torch.tensor([[0, 1, 0, 1]]))
    assert model.score(torch.tensor([[0, 1, 1, 2]])).tolist() == [[0.0, 0.0, -math.inf, -math.inf]]


# ---- counting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 3])
def test_counting_in_two_calls_equals_counting_once(order: int) -> None:
    rows = rows_of("large")
    once, twice = counted(rows, order, end=END), counted(rows[:17], order, end=END)
    twice.count(*padded(rows[17:]), end=END)
    for (name, one), (_, two) in zip(once.named_buffers(), twice.named_buffers(), strict=True):
        assert torch.equal(one, two), name


def test_every_ngram_within_a_row_is_counted() -> None:
    first, second, third = count_ngrams(np.array([3, 0, 1, 0, 3, 0, 1]), vocab_size=3, order=2)
    assert (first.symbol.tolist(), first.counts.tolist()) == ([0, 1, 3], [3, 2, 2])
    assert [(first.symbol[p], s) for p, s in zip(second.parent, second.symbol, strict=True)] == [(0, 1), (1, 0), (3, 0)]
    assert second.counts.tolist() == [2, 1, 2]
    assert second.suffix.tolist() == [1, 0, 0]  # the unigrams 1, 0 and 0
    assert (third.symbol.tolist(), third.counts.tolist()) == ([0, 1], [1, 2])  # 0 1 0, and begin 0 1 twice


def test_keys_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError, match=r"vocab_size 4611686018427387904. Lower the order"):
        count_ngrams(np.array([2**62, 0, 1, 2, 0]), vocab_size=2**62, order=1)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("order", [0, 2])
def test_empty_batches(shape: tuple[int, int], order: int) -> None:
    ids = torch.zeros(shape, dtype=torch.int64)
    for model in (Markov(V, order), counted(rows_of("tiny"), order)):
        model.count(ids)
        model.count(ids, end=END)
        output, memory = model(ids)
        assert output.shape == (*shape, V)
        assert memory.last.shape == (shape[0], order)
        assert model.score(ids).shape == shape
        assert model.score(ids, end=END).shape == (shape[0], shape[1] + 1)


# ---- reading in pieces, moving, keeping ------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_reading_in_pieces_equals_reading_at_once(order: int) -> None:
    model = counted(rows_of("large"), order)
    ids, valid = padded(rows_of("large", seed=1))
    whole, after = model(ids, valid=valid)
    sizes = [1, 0, 7, ids.shape[1] - 8]
    pieces, memory = [], model.initial_memory(len(ids))
    for piece, real in zip(ids.split(sizes, 1), valid.split(sizes, 1), strict=True):
        output, memory = model(piece, memory, valid=real)
        pieces.append(output)
    assert torch.equal(torch.cat(pieces, 1), whole)
    assert isinstance(memory, Recent)
    assert memory.equals(after)
    assert memory.length.tolist() == valid.sum(1).tolist()


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_saved_counts_load_into_a_fresh_model(smoothing: str) -> None:
    model = counted(rows_of("large"), 3, smoothing)
    fresh = counted(rows_of("tiny"), 3, smoothing)
    fresh.load_state_dict(model.state_dict())
    ids = torch.tensor(rows_of("large", seed=1)[:1])
    assert torch.equal(fresh.score(ids), model.score(ids))
    fresh.count(*padded(rows_of("tiny")))  # still counts on, and leaves the first alone
    assert not torch.equal(fresh.score(ids), model.score(ids))


def test_counts_load_inside_a_larger_module_and_under_another_smoothing() -> None:
    rows = rows_of("large")
    fresh = Markov(V, 2, smoothing="witten-bell")
    torch.nn.ModuleList([fresh]).load_state_dict(torch.nn.ModuleList([counted(rows, 2)]).state_dict())
    ids = torch.tensor(rows[:1])
    assert torch.equal(fresh.score(ids), counted(rows, 2, "witten-bell").score(ids))


def test_counts_of_another_model_are_refused() -> None:
    state = counted(rows_of("tiny"), 2).state_dict()
    with pytest.raises(RuntimeError, match="vocabulary: got counts over 12 symbols, expected 13"):
        Markov(V + 1, 2).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Missing key.*keys_4"):
        Markov(V, 3).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*keys_3"):
        Markov(V, 1).load_state_dict(state)


def test_single_precision() -> None:
    model = counted(rows_of("large"), 3)
    ids = torch.tensor(rows_of("large", seed=1)[:1], dtype=torch.int32)
    double = model.score(ids)
    single = model.float()
    assert single(ids)[0].dtype == torch.float32
    torch.testing.assert_close(single.score(ids), double.float(), rtol=1e-5, atol=1e-5)
    single.count(ids)
    assert single.score(ids).dtype == torch.float32


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((0, 1), {}, "vocab_size: got 0, expected at least 1"),
        ((5, -1), {}, "order: got -1, expected at least 0"),
        ((5, 1), {"smoothing": "laplace"}, "smoothing: got 'laplace', expected 'kneser-ney' or"),
    ],
)
def test_bad_models(arguments: tuple[int, int], options: dict[str, str], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        Markov(*arguments, **options)  # type: ignore[arg-type]


IDS = torch.tensor([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("ids", "valid", "end", "words"),
    [
        (IDS[0], None, None, r"ids: got shape \(3,\), expected \(B, T\)"),
        (IDS.double(), None, None, r"ids: got dtype torch.float64, expected torch.int64"),
        (IDS + 9, None, None, r"ids: got ids from 9 to 14, expected 0 to 11"),
        (IDS - 1, None, None, r"ids: got ids from -1 to 4, expected 0 to 11"),
        (IDS, torch.ones(2, 2, dtype=torch.bool), None, r"valid: got shape \(2, 2\), expected \(2, 3\)"),
        (IDS, torch.ones(2, 3), None, r"valid: got dtype torch.float32, expected torch.bool"),
        (IDS, IDS != 4, None, r"valid: got row 1 valid again at step 2, expected a prefix"),
        (IDS, None, V, r"end: got 12, expected an id, 0 to 11"),
    ],
)
def test_bad_inputs(ids: Tensor, valid: Tensor | None, end: int | None, words: str) -> None:
    model = Markov(V, 2)
    with pytest.raises(ContractError, match=words):
        model.count(ids, valid, end=end)
    with pytest.raises(ContractError, match=words):
        model.score(ids, valid, end=end)
