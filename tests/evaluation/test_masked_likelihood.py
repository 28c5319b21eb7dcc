"""Hidden symbols that are not in the vocabulary: read, shown, and in no figure of a masked language model."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch

import recollect as rc
from command_line import ask
from recollect.data.text.masked_batches import IGNORED, MaskedBatch, masked_rows
from recollect.evaluation.masked_likelihood import fill, fill_by_counts

UNKNOWN = 3
GIVEN = torch.tensor([0.1, 0.2, 0.1, 0.6])  # by the model, which likes the unknown symbol best
Y = torch.tensor([[1, UNKNOWN, 0], [UNKNOWN, UNKNOWN, IGNORED], [1, 1, UNKNOWN]])


class Same(torch.nn.Module):
    """A model that gives every place the same probabilities."""

    def encode(self, x, valid=None, segments=None):
        return GIVEN.log().expand(*x.shape, 4)

    def predict(self, features):
        return features.clone()


def batch() -> MaskedBatch:
    places = torch.arange(3).expand(3, 3)
    return MaskedBatch(torch.zeros(3, 5, dtype=torch.long), None, None, places, Y, None, None)


def test_unknown_symbols_are_in_no_figure_of_a_model():
    found = fill(Same(), [batch()], torch.device("cpu"), UNKNOWN)
    assert found.counts == [2, 0, 2]
    assert found.right == [1, 0, 2]  # the likeliest known symbol is 1, as `predict` would answer
    nats = [-math.log(0.2) - math.log(0.1), 0.0, -2 * math.log(0.2)]  # what `<unk>` was given is lost
    assert found.nats == pytest.approx(nats, rel=1e-6)
    assert found.figures == pytest.approx({"loss": sum(nats) / 4, "accuracy": 0.75, "unknown": 0.5}, rel=1e-6)


def test_unknown_symbols_are_in_no_figure_of_counts():
    rows = fill_by_counts(np.array([1, 3, 1, 91]), [batch()], has_pairs=False, unknown=UNKNOWN)
    loss = (-3 * math.log(4 / 100) - math.log(2 / 100)) / 4
    assert rows["unigram"] == pytest.approx({"loss": loss, "accuracy": 0.75, "unknown": 0.5})
    assert rows["uniform"] == pytest.approx({"loss": math.log(4), "accuracy": 0.25, "unknown": 0.5})


def test_a_text_that_writes_the_symbol_itself_counts_it():
    found = fill(Same(), [batch()], torch.device("cpu"))
    assert found.counts == [3, 2, 3]
    assert found.figures["accuracy"] == 0.5
    assert "unknown" not in found.figures
    assert "unknown" not in fill_by_counts(np.array([1, 3, 1, 91]), [batch()], has_pairs=False)["unigram"]


@pytest.fixture
def book(tmp_path):
    """Return a text of which about half of the words are rare: the usual ones, each followed by one of very many."""
    draw = random.Random(0)
    words = [word for n in range(3000) for word in (draw.choice(["the", "a", "one"]), f"w{n % 1500}")]
    lines = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
    path = tmp_path / "book.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_run_shows_the_share_of_unknown_symbols_and_no_row_is_credited_with_them(book, tmp_path):
    folder = tmp_path / "run"
    sizes = {"width": 8, "batch_size": 4, "steps": 24, "vocab_size": 40}
    run = rc.train(book, task="masked", model="bilstm", tokenizer="word", budget="1steps", out=folder, **sizes)
    rows = json.loads(ask("evaluate", str(folder), "--json").stdout)["rows"]
    assert [row["read"] for row in rows] == ["masked", "unigram", "uniform"]
    assert len({row["unknown"] for row in rows}) == 1
    assert 0.2 < rows[0]["unknown"] < 0.8
    dataset = run.dataset()
    items = run.task.item_scores(run.model, dataset, "test")
    rows_read = masked_rows(dataset.test, dataset.ends["test"], run.task.masking(dataset), 4)
    hidden = sum(batch.count for batch in rows_read)
    assert sum(items.denominators) == pytest.approx((1 - rows[0]["unknown"]) * hidden)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert any("valid_unknown" in json.loads(line) for line in lines)
    assert "unknown and left out" in (folder / "README.md").read_text(encoding="utf-8")
    (tmp_path / "strange.txt").write_text("never seen before ? indeed\n" * 3, encoding="utf-8")
    said = ask("evaluate", str(folder), str(tmp_path / "strange.txt"), code=2).stderr
    assert "in the test part none is in the vocabulary; give more text" in said
