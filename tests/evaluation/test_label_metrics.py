"""Label metrics equal scikit-learn's, span F1 equals seqeval's and conlleval's, schemes convert without loss."""

from __future__ import annotations

import random

import numpy as np
import pytest

from recollect.data.labels.tag_schemes import (
    MARKS,
    SCHEMES,
    converted_tags,
    fault_in,
    find_scheme,
    spans_of,
    with_scheme,
)
from recollect.evaluation.label_metrics import (
    accuracy,
    calibration_error,
    confusion,
    f1_by_label,
    macro_f1,
    micro_f1,
    span_scores,
)


def drawn_tags(rng, marks, length):
    """Draw tags, most of them illegal."""
    tags = [f"{mark}-{kind}" for mark in marks for kind in ("PER", "LOC")]
    return [rng.choice(["O", *tags]) for _ in range(length)]


@pytest.mark.parametrize("marks", ["BI", "BIES"])
def test_span_f1_equals_seqeval_and_conlleval(marks):
    seqeval = pytest.importorskip("seqeval.metrics")
    conlleval = pytest.importorskip("conlleval")
    rng = random.Random(0)
    truth, found = ([drawn_tags(rng, marks, rng.randint(1, 9)) for _ in range(5_000)] for _ in range(2))
    found = [drawn_tags(rng, marks, len(one)) for one in truth]
    for i in range(0, len(truth), 3):  # some right, some nearly so
        found[i] = list(truth[i])
        if i % 2:
            found[i][-1] = "O"
    ours = span_scores(truth, found)
    assert ours["span_f1"] == pytest.approx(seqeval.f1_score(truth, found), abs=1e-12)
    assert ours["span_precision"] == pytest.approx(seqeval.precision_score(truth, found), abs=1e-12)
    assert ours["span_recall"] == pytest.approx(seqeval.recall_score(truth, found), abs=1e-12)
    lines = []
    for true_tags, tags in zip(truth, found, strict=True):
        lines += [f"w {one} {other}" for one, other in zip(true_tags, tags, strict=True)] + [""]
    theirs = conlleval.evaluate(lines)["overall"]["chunks"]["evals"]
    assert ours["span_f1"] == pytest.approx(theirs["f1"], abs=1e-12)
    assert ours["span_precision"] == pytest.approx(theirs["prec"], abs=1e-12)


def sequences_in(scheme, count):
    """Draw as many legal sequences of a scheme as sequences of its marks, of which most are illegal."""
    rng = random.Random(2)
    drawn = [drawn_tags(rng, MARKS[scheme], rng.randint(1, 9)) for _ in range(count)]
    return drawn, [with_scheme(spans_of(tags), len(tags), scheme) for tags in drawn]


@pytest.mark.filterwarnings("ignore:M-.* seems not to be NE tag")  # seqeval's, which has no M
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_spans_of_every_sequence_are_seqevals(scheme):
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    illegal, legal = sequences_in(scheme, 5_000)
    assert sum(fault_in(tags, scheme) is not None for tags in illegal) > 1_000
    for tags in legal:
        assert spans_of(tags) == [(kind, first, last + 1) for kind, first, last in labeling.get_entities(tags)], tags
    for tags in illegal:
        read = [tag.replace("M-", "I-") for tag in tags]  # seqeval has no M
        assert spans_of(tags) == [(kind, first, last + 1) for kind, first, last in labeling.get_entities(read)], tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_spans_of_every_sequence_are_counted_as_conlleval_does(scheme):
    conlleval = pytest.importorskip("conlleval")
    illegal, legal = sequences_in(scheme, 1_000)
    for truth, found in zip(legal, illegal, strict=True):
        read = [tag.replace("M-", "I-") for tag in found]  # conlleval has no M
        lines = [f"w {one} {other}" for one, other in zip(truth, read, strict=True)]
        theirs = conlleval.evaluate([*lines, ""])["overall"]["chunks"]["evals"]
        ours = span_scores([truth], [found])
        assert ours["span_f1"] == pytest.approx(theirs["f1"], abs=1e-12), (truth, found)
        assert ours["span_recall"] == pytest.approx(theirs["rec"], abs=1e-12), (truth, found)


@pytest.mark.filterwarnings("ignore:M-.* seems not to be NE tag")  # seqeval's, which has no M
def test_an_m_after_an_end_begins_a_span_here_alone():
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    tags = ["S-PER", "M-PER"]
    assert spans_of(tags) == [("PER", 0, 1), ("PER", 1, 2)]
    assert labeling.get_entities(tags) == [("PER", 0, 0), ("PER", 0, 1)]  # the second has the beginning of the first


def test_spans_of_nothing():
    assert span_scores([["O", "O"]], [["O", "O"]]) == {"span_f1": 0.0, "span_precision": 0.0, "span_recall": 0.0}
    assert spans_of([]) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_keeps_the_spans(scheme):
    rng = random.Random(1)
    for _ in range(300):
        spans = spans_of(drawn_tags(rng, "BIES", rng.randint(0, 9)))
        length = 9
        tags = with_scheme(spans, length, scheme)
        assert spans_of(tags) == spans
        assert fault_in(tags, scheme) is None


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-A I-A O B-B", "bio"),
        ("I-A I-A O I-B B-B", "iob1"),
        ("B-A E-A O S-B", "bioes"),
        ("B-A M-A E-A S-B", "bmes"),
        ("O I-A B-B", "bio"),  # no scheme allows it: read as BIO
        ("NOUN VERB", None),
        ("O O", None),
    ],
)
def test_a_scheme_is_found(tags, scheme):
    assert find_scheme([tags.split()]) == scheme


def test_a_word_without_a_tag_is_outside_of_spans_and_stays_so():
    tags = ["B-PER", "_", "I-PER", "_", "O"]
    assert spans_of(tags) == [("PER", 0, 1), ("PER", 2, 3)]
    assert converted_tags(tags, "bioes") == ["S-PER", "_", "S-PER", "_", "O"]
    assert fault_in(["B-PER", "_", "O"], "bio") is None
    assert fault_in(["B-PER", "_", "I-PER"], "bio") == 2
    assert find_scheme([["_", "O"]]) is None


def test_faults_are_placed():
    assert fault_in(["O", "I-A"], "bio") == 1
    assert fault_in(["B-A", "I-B"], "bio") == 1
    assert fault_in(["B-A", "O"], "bioes") == 0


def test_label_metrics_equal_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    for labels in (2, 3, 7):
        truth, found = draw.integers(0, labels, (2, 400))
        found = np.where(draw.random(400) < 0.5, truth, found)
        matrix = confusion(truth, found, labels)
        assert (matrix == metrics.confusion_matrix(truth, found)).all()
        assert accuracy(matrix) == pytest.approx(metrics.accuracy_score(truth, found))
        assert macro_f1(matrix) == pytest.approx(metrics.f1_score(truth, found, average="macro"))
        assert micro_f1(matrix) == pytest.approx(metrics.f1_score(truth, found, average="micro"))
        np.testing.assert_allclose(f1_by_label(matrix), metrics.f1_score(truth, found, average=None))


def test_a_label_that_never_occurs_does_not_count():
    matrix = confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 3)
    assert macro_f1(matrix) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_calibration_error_by_its_definition():
    draw = np.random.default_rng(0)
    confidence, is_right = draw.random(500), draw.random(500) < 0.6
    expected = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(is_right[inside].mean() - confidence[inside].mean())
    assert calibration_error(confidence, is_right) == pytest.approx(expected)
    assert calibration_error(np.ones(4), np.ones(4, dtype=bool)) == 0
    assert calibration_error(np.zeros(0), np.zeros(0, dtype=bool)) == 0
