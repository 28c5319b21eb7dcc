"""Metrics of labels and tags, by their definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recollect.core.task import Measure
from recollect.data.labels.tag_schemes import spans_of

Matrix = NDArray[np.int64]
BINS = 15  # of the calibration error, as in Guo et al. 2017
ACCURACY = Measure("accuracy", "share of labels that are right", lower_is_better=False)
LOSS = Measure("loss", "nats per label")
SPAN_F1 = Measure("span F1", "harmonic mean of precision and recall of whole spans", lower_is_better=False)
MEASURES = {
    "accuracy": ACCURACY,
    "macro_f1": Measure("macro F1", "mean of the labels' F1", lower_is_better=False),
    "micro_f1": Measure("micro F1", "F1 of all decisions together", lower_is_better=False),
    "calibration": Measure("calibration error", "mean |accuracy − probability| over 15 bins of the probability"),
    "span_f1": SPAN_F1,
    "span_precision": Measure("span precision", "share of predicted spans that are right", lower_is_better=False),
    "span_recall": Measure("span recall", "share of true spans that are found", lower_is_better=False),
    "loss": LOSS,
}


def confusion(truth: NDArray[np.int64], found: NDArray[np.int64], labels: int) -> Matrix:
    """Return how often each label (row) was labelled as each (column)."""
    matrix = np.zeros((labels, labels), dtype=np.int64)
    np.add.at(matrix, (truth, found), 1)
    return matrix


def accuracy(matrix: Matrix) -> float:
    """Return the share of the diagonal."""
    return float(np.trace(matrix) / max(matrix.sum(), 1))


def f1_by_label(matrix: Matrix) -> NDArray[np.float64]:
    """Return 2 tp / (2 tp + fp + fn) of each label; 0 for one that neither occurs nor is predicted."""
    right = np.diag(matrix)
    both = matrix.sum(0) + matrix.sum(1)
    return np.where(both > 0, 2 * right / np.maximum(both, 1), 0.0)


def macro_f1(matrix: Matrix) -> float:
    """Return the mean F1 of the labels that occur or are predicted."""
    used = matrix.sum(0) + matrix.sum(1) > 0
    return float(f1_by_label(matrix)[used].mean()) if used.any() else 0.0


def micro_f1(matrix: Matrix) -> float:
    """Return F1 over all decisions; with one label for each example it equals the accuracy."""
    right = np.trace(matrix)
    wrong = matrix.sum() - right
    return float(2 * right / max(2 * right + 2 * wrong, 1))


def calibration_error(confidence: NDArray[np.float64], is_right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Return the expected calibration error (Guo et al. 2017, eq. 3): Σ_b n_b / n |accuracy_b − confidence_b|.

    Bins of equal width (m/M, (m + 1)/M] of the probability of the predicted label.
    """
    if not len(confidence):
        return 0.0
    numbers = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    sums = np.bincount(numbers, weights=is_right.astype(float) - confidence, minlength=bins)
    return float(np.abs(sums).sum() / len(confidence))


def span_counts(truth: Sequence[str], found: Sequence[str]) -> dict[str, int]:
    """Return how many spans of one sequence are right, are found, and are true."""
    theirs = set(spans_of(truth))
    ours = set(spans_of(found))
    return {"right": len(theirs & ours), "found": len(ours), "true": len(theirs)}


def span_scores(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall and F1 of whole spans, over all sequences, as conlleval and seqeval compute them."""
    right = Counter[str]()
    for true_tags, tags in zip(truth, found, strict=True):
        right.update(span_counts(true_tags, tags))
    precision = right["right"] / right["found"] if right["found"] else 0.0
    recall = right["right"] / right["true"] if right["true"] else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right["right"] else 0.0
    return {"span_f1": f1, "span_precision": precision, "span_recall": recall}
