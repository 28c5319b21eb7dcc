"""Associative recall: every score learns to find a key among others and to give the value that stood with it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from recall_pairs import PAIRS, SYMBOLS, WIDTH, pairs
from torch import Tensor, nn

from recollect.evaluation.alignment_error import alignment_error_rate
from recollect.layers.attention.attend import Attend, Looked
from recollect.layers.attention.score import SCORES, make_score

TEMPERATURE = {"cosine": 0.1}  # a cosine between -1 and 1 is too flat without; a distance may grow as it needs


class Recall(nn.Module):
    """Embeddings, an attention and a linear map: a source step is the sum of a key's and a value's vector."""

    def __init__(self, score: str, **options) -> None:
        super().__init__()
        self.key, self.value = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(SYMBOLS, WIDTH)
        self.attend = Attend(make_score(score, WIDTH, WIDTH, **options))
        self.query, self.out = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        for table in (self.key, self.value, self.query):
            # Larger vectors saturate the tanh of the activated general score before it has learned anything.
            nn.init.normal_(table.weight, std=WIDTH**-0.5)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor, valid: Tensor) -> tuple[Tensor, Looked]:
        source = self.attend.remember(self.key(keys) + self.value(values), valid)
        look = self.attend.look(self.query(asked)[:, None], source)
        return self.out(look.context[:, 0]), look


def trained(score: str, steps: int = 300, **options) -> Recall:
    torch.manual_seed(0)
    model = Recall(score, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps):
        given, place = pairs(step, 64)
        answer = given[1].gather(1, place[:, None])[:, 0]
        F.cross_entropy(model(*given)[0], answer).backward()
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


def accuracy_and_error(model: Recall) -> tuple[float, float]:
    """Give the share of values recalled, and the alignment error rate, on pairs that were not trained on."""
    given, place = pairs(10**6, 2000)
    with torch.no_grad():
        logits, look = model(*given)
    sure = F.one_hot(place, PAIRS)[:, None].bool()
    answer = given[1].gather(1, place[:, None])[:, 0]
    return float((logits.argmax(1) == answer).double().mean()), alignment_error_rate(look.weights, sure)


@pytest.mark.parametrize("score", SCORES)
def test_every_score_recalls(score):
    options = {"temperature": TEMPERATURE[score]} if score in TEMPERATURE else {}
    accuracy, error = accuracy_and_error(trained(score, **options))
    assert accuracy >= 0.95
    assert error < 0.05


def test_a_cosine_needs_a_temperature_to_be_heard():
    """Without one it finds the step, but mixes too much of the others into the context."""
    accuracy, error = accuracy_and_error(trained("cosine"))
    assert accuracy < 0.95
    assert error < 0.05
    assert accuracy_and_error(trained("cosine", learned=True))[0] >= 0.95


def test_an_attention_that_was_not_trained_does_not():
    accuracy, error = accuracy_and_error(trained("dot", steps=0))
    assert accuracy < 0.3
    assert error > 0.5
