"""The task model: four models put together, on real sequences of unequal lengths."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recollect import GRU, Convolution, Embedding, Stack, record
from recollect.layers.attention.alignment import make_alignment
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.multi_head import MultiHead, MultiHop
from recollect.layers.attention.score import ScaledDot, make_score
from recollect.models.task_model import ContextQuery, LastStep, LearnedQuery, MeanQuery, TaskModel

SYMBOLS, WIDTH, CLASSES = 9, 8, 3
FEATURES = {
    "embedding": lambda: Embedding(SYMBOLS, WIDTH),
    "rnn": lambda: Stack(Embedding(SYMBOLS, WIDTH), GRU(WIDTH, WIDTH)),
    "cnn": lambda: Stack(Embedding(SYMBOLS, WIDTH), Convolution(WIDTH)),
}
ATTENTIONS = {
    "single": lambda: Attend(make_score("general", WIDTH, WIDTH)),
    "hard": lambda: Attend(make_score("additive", WIDTH, WIDTH), make_alignment("hard")),
    "multi-head": lambda: MultiHead(WIDTH, [Attend(ScaledDot(4, 4)) for _ in range(2)]),
    "multi-hop": lambda: MultiHop(Attend(make_score("dot", WIDTH, WIDTH)), 2),
}
QUERIES = {
    "last step": LastStep,
    "learned": lambda: LearnedQuery(WIDTH),
    "mean": MeanQuery,
    "context": lambda: ContextQuery(LearnedQuery(WIDTH), Attend(make_score("general", WIDTH, WIDTH))),
}


def model(feature="rnn", query="last step", attend="single") -> TaskModel:
    torch.manual_seed(0)
    output = nn.Linear(WIDTH, CLASSES)
    return TaskModel(FEATURES[feature](), QUERIES[query](), ATTENTIONS[attend](), output).double()


def ids() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randint(SYMBOLS, (4, 6)), torch.arange(6) < torch.tensor([3, 6, 0, 1])[:, None]


@pytest.mark.parametrize("attend", ATTENTIONS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("feature", FEATURES)
def test_a_row_is_answered_for_itself(feature, query, attend):
    made = model(feature, query, attend).eval()
    x, valid = ids()
    y = made(x, valid=valid)
    assert y.shape == (4, 1, CLASSES)
    for b in (0, 1, 3):
        alone = made(x[b : b + 1, : int(valid[b].sum())])
        torch.testing.assert_close(y[b : b + 1], alone, rtol=1e-10, atol=1e-10)
    assert y[2].isfinite().all()
    assert y[[0, 1, 3]].std(0).max() > 1e-4


def test_it_is_the_survey_s_chain():
    made = model()
    x, _ = ids()
    with record(made) as seen:
        y = made(x)
    F = made.feature(x)[0]
    e = (F[:, -1:] @ made.attend.score.query.weight.T) @ F.transpose(1, 2)
    c = e.softmax(2) @ F
    torch.testing.assert_close(seen["attend.scores"], e, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(y, c @ made.output.weight.T + made.output.bias, rtol=1e-10, atol=1e-10)


def test_it_learns_to_classify_a_sequence_by_one_of_its_symbols():
    """The class is which of the symbols 0, 1, 2 occurs among others, anywhere."""
    made = model("embedding", "learned").float()
    optimiser = torch.optim.Adam(made.parameters(), lr=0.02)
    for step in range(150):
        torch.manual_seed(step)
        labels, x = torch.randint(CLASSES, (64,)), torch.randint(CLASSES, SYMBOLS, (64, 6))
        x[torch.arange(64), torch.randint(6, (64,))] = labels
        answers = made(x)[:, 0]
        if step == 149:
            assert (answers.argmax(1) == labels).double().mean() > 0.95
        nn.functional.cross_entropy(answers, labels).backward()
        optimiser.step()
        optimiser.zero_grad()


def test_asking_with_the_context_of_the_same_attention_is_a_second_hop():
    """H = 0 and W = I: the second hop's query is what the first has found."""
    attend, first = Attend(make_score("general", WIDTH, WIDTH)).double(), LearnedQuery(WIDTH).double()
    hops = MultiHop(attend, 2, dtype=torch.float64)
    with torch.no_grad():
        hops.again.weight.zero_()
        hops.seen.weight.copy_(torch.eye(WIDTH))
    x, valid = ids()
    features = torch.randn(*x.shape, WIDTH, dtype=torch.float64)
    source = attend.remember(features, valid)
    ours = attend(ContextQuery(first, attend)(features, valid), source)
    torch.testing.assert_close(ours, hops(first(features, valid), source), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(ours, attend(first(features, valid), source))


def test_the_mean_asks_as_attention_without_preference_and_as_the_last_step_of_one():
    x, valid = ids()
    features = torch.randn(*x.shape, WIDTH, dtype=torch.float64)
    even = ContextQuery(LearnedQuery(WIDTH).double(), Attend(make_score("dot", WIDTH, WIDTH)))
    with torch.no_grad():
        even.query.queries.zero_()
    torch.testing.assert_close(MeanQuery()(features, valid), even(features, valid), rtol=1e-10, atol=1e-10)
    one, first = features[:, :1], valid[:, :1]
    torch.testing.assert_close(MeanQuery()(one, first), LastStep()(one, first), rtol=0, atol=0)


def test_features_of_another_width_are_refused():
    with pytest.raises(ValueError, match="attend: got source_width 8, expected 5, the feature model's width_out"):
        TaskModel(Embedding(SYMBOLS, 5), LastStep(), ATTENTIONS["single"](), nn.Linear(WIDTH, CLASSES))
