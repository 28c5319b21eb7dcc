"""The notes: what decides is memory, and what is shown of a model is what it did."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from recollect.core.record import record
from recollect.story.notes import (
    DISTANCES,
    HELD_OUT,
    TRAINED,
    Exam,
    accuracy,
    asked_weight,
    attention_of,
    gates_of,
    grade,
    learn,
    make_exam,
)


@pytest.fixture(scope="module")
def exam() -> Exam:
    return make_exam(lines=500)


def learned(family: str, exam: Exam, updates: int):
    """Train for a number of updates: the clock counts them."""
    ticks = count()
    model, done = learn(family, exam, updates, clock=lambda: next(ticks))
    assert done == (0 if family == "markov" else updates - 1)
    return model


def test_no_held_out_line_was_trained_on(exam):
    assert list(exam.held_out) == list(DISTANCES)
    assert list(exam.train) == list(TRAINED)
    for distance, lines in exam.train.items():
        assert lines.shape == (500, distance + 4)
        assert exam.held_out[distance].shape == (HELD_OUT, distance + 4)
        assert not {tuple(line) for line in lines.tolist()} & {tuple(line) for line in exam.held_out[distance].tolist()}


def test_counting_sees_a_note_nearby_and_none_far_away(exam):
    shares = grade("markov", learned("markov", exam, 0), 0, exam).accuracy
    assert shares[1] > 0.2
    assert max(share for distance, share in shares.items() if distance >= 4) < 0.2


def test_accuracy_is_the_share_of_right_answers(exam):
    model = learned("markov", exam, 0)
    lines = exam.held_out[1][:100]
    chosen = model(lines[:, :-1])[0][:, -1].argmax(-1)
    assert accuracy(model, torch.cat([lines[:, :-1], chosen[:, None]], 1)) == 1
    assert accuracy(model, lines) == pytest.approx((chosen == lines[:, -1]).float().mean().item())


def test_what_is_shown_of_a_transformer_is_what_it_attended_to(exam):
    model = learned("transformer", exam, 3)
    shown = attention_of("transformer", model, exam)
    ids = torch.tensor([exam.tokenizer.encode("".join(shown.symbols)).tolist()])
    name, _, head = shown.name.removesuffix("]").rpartition(", ")
    with torch.no_grad(), record(model) as inner:
        logits, _ = model(ids)
    weights = inner[name.partition("[")[0]][0, int(head)]
    assert torch.allclose(torch.tensor(shown.values), weights, atol=1e-6)
    others = max(
        float(w[0, :, -1, shown.symbols.index(shown.expected)].max())
        for n, w in inner.items()
        if n.endswith(".weights")
    )
    assert asked_weight(shown) == pytest.approx(others)
    assert exam.tokenizer.decode([int(logits[0, -1].argmax())]) == shown.answer


def test_what_is_shown_of_an_lstm_are_its_gates(exam):
    model = learned("lstm", exam, 3)
    shown = gates_of("lstm", model, exam, "input_gate")
    assert shown.name == "body.layers.1.input_gate.mean(-1)"
    assert len(shown.values[0]) == len(shown.symbols) == 19
    assert all(0 < value < 1 for value in shown.values[0])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "updates"), [("lstm", 1500), ("gru", 1200), ("transformer", 500)])
def test_gates_and_attention_remember_over_every_trained_distance(family, updates):
    whole = make_exam()
    shares = grade(family, learned(family, whole, updates), updates, whole).accuracy
    assert min(shares[distance] for distance in TRAINED) > 0.95


@pytest.mark.slow
def test_a_window_fails_beyond_its_end():
    whole = make_exam()
    shares = grade("window", learned("window", whole, 500), 500, whole).accuracy
    assert shares[1] > 0.9
    assert max(share for distance, share in shares.items() if distance >= 4) < 0.2
