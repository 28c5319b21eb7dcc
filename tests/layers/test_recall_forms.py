"""Associative recall with the forms of attention that read more than one sequence, level or representation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from recall_pairs import PAIRS, SYMBOLS, WIDTH, pairs
from torch import Tensor, nn

from recollect.layers.attention.attend import Attend
from recollect.layers.attention.coattention import MultiGrainedCoAttention
from recollect.layers.attention.levels import AttentionViaAttention, MultiRepresentational
from recollect.layers.attention.score import Additive, General
from recollect.models.task_model import ContextQuery, LearnedQuery, MeanQuery


class Recall(nn.Module):
    """Embeddings of keys, values, places and of what is asked for; `form` and `answer` are the subclasses'."""

    width_out = WIDTH

    def __init__(self) -> None:
        super().__init__()
        tables = (nn.Embedding(SYMBOLS, WIDTH) for _ in range(4))
        self.key, self.value, self.place, self.query = tables
        for table in self.children():
            nn.init.normal_(table.weight, std=WIDTH**-0.5)
        self.make()
        self.out = nn.Linear(self.width_out, SYMBOLS)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor, valid: Tensor) -> Tensor:
        return self.out(self.found(keys, values, asked, valid))


class MultiGrained(Recall):
    width_out = 2 * WIDTH

    def make(self):
        self.form = MultiGrainedCoAttention(WIDTH)

    def found(self, keys, values, asked, valid):
        return self.form(self.key(keys) + self.value(values), self.query(asked)[:, None], valid)[0]


class ViaAttention(Recall):
    """A word is a key with its place, its character the value with the same place: only the word tells which."""

    width_out = 2 * WIDTH

    def make(self):
        self.form = AttentionViaAttention(Attend(General(WIDTH, WIDTH)), Attend(General(2 * WIDTH, WIDTH)))

    def found(self, keys, values, asked, valid):
        place = self.place(torch.arange(PAIRS).expand_as(keys))
        source = self.form.remember(self.key(keys) + place, self.value(values) + place, valid, valid)
        return self.form(self.query(asked)[:, None], source)[:, 0]


class WithoutWords(ViaAttention):
    """The same, but the characters are asked without the words' context."""

    def found(self, keys, values, asked, valid):
        with torch.no_grad():
            self.form.fine.score.query.weight[:, WIDTH:] = 0
        return super().found(keys, values, asked, valid)


class Representations(Recall):
    """Two representations of every step, one of them noise; a mark tells which."""

    marked = True

    def make(self):
        self.mix = MultiRepresentational((WIDTH + 1, WIDTH + 1), WIDTH)
        self.attend = Attend(General(WIDTH, WIDTH))

    def found(self, keys, values, asked, valid):
        true = F.pad(self.key(keys) + self.value(values), (0, 1))
        noise = F.pad(3 * torch.randn(*true.shape[:2], WIDTH), (0, 1), value=1.0)
        swap = (torch.rand(keys.shape) < 0.5)[..., None]
        mixed = self.mix([torch.where(swap, noise, true), torch.where(swap, true, noise)], valid)
        return self.attend(self.query(asked)[:, None], self.attend.remember(mixed, valid))[:, 0]


class EqualRepresentations(Representations):
    """The same, but both representations always count alike."""

    def found(self, keys, values, asked, valid):
        with torch.no_grad():
            self.mix.score.weight.zero_()
        return super().found(keys, values, asked, valid)


class AskedAmongThem(Recall):
    """The key that is asked for stands among the features, as one step more: the query must be made from them."""

    def make(self):
        self.attend = Attend(Additive(WIDTH, WIDTH))
        self.asks = ContextQuery(LearnedQuery(WIDTH), Attend(General(WIDTH, WIDTH)))

    def found(self, keys, values, asked, valid):
        features = torch.cat([self.query(asked)[:, None], self.key(keys) + self.value(values)], dim=1)
        valid = F.pad(valid, (1, 0), value=True)
        return self.attend(self.asks(features, valid), self.attend.remember(features, valid))[:, 0]


class MeanAsks(AskedAmongThem):
    def make(self):
        super().make()
        self.asks = MeanQuery()


class OneQueryForAll(AskedAmongThem):
    """The same with a query that is not specialised: one for every row."""

    def make(self):
        super().make()
        self.asks = LearnedQuery(WIDTH)


def accuracy(kind: Callable[[], Recall], steps: int = 400) -> float:
    """Return the share of values recalled on pairs that were not trained on."""
    torch.manual_seed(0)
    model = kind()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps):
        given, place = pairs(step, 64)
        F.cross_entropy(model(*given), given[1].gather(1, place[:, None])[:, 0]).backward()
        optimiser.step()
        optimiser.zero_grad()
    given, place = pairs(10**6, 2000)
    with torch.no_grad():
        found = model.eval()(*given).argmax(1)
    return float((found == given[1].gather(1, place[:, None])[:, 0]).double().mean())


@pytest.mark.parametrize("kind", [MultiGrained, ViaAttention, Representations, AskedAmongThem, MeanAsks])
def test_every_form_recalls(kind):
    assert accuracy(kind) >= 0.95


@pytest.mark.parametrize("kind", [WithoutWords, EqualRepresentations, OneQueryForAll])
def test_what_a_form_adds_is_needed(kind):
    assert accuracy(kind) < 0.8
