"""Self-attentive pooling, documents of sentences, and capsules."""

from __future__ import annotations

import pytest
import torch
from attention_parts import DTYPE, WIDTH, close, example, fails, poisoned

from recollect import GRU, Bidirectional, record
from recollect.layers.attention.pooling import Capsules, Hierarchical, SelfAttentive
from recollect.layers.attention.score import SCORES, make_score


def pool(rows: int = 2, **options) -> SelfAttentive:
    torch.manual_seed(0)
    return SelfAttentive(WIDTH, rows, dtype=DTYPE, **options)


def document() -> tuple[torch.Tensor, torch.Tensor]:
    """Give words (3, 4, 5, WIDTH) of three documents: of 4, 0 and 2 sentences of unequal lengths."""
    torch.manual_seed(1)
    lengths = torch.tensor([[5, 1, 3, 2], [0, 0, 0, 0], [2, 4, 0, 0]])
    return torch.randn(3, 4, 5, WIDTH, dtype=DTYPE), torch.arange(5) < lengths[..., None]


def hierarchy(*, with_readers: bool = False) -> Hierarchical:
    readers = {}
    if with_readers:
        torch.manual_seed(2)
        both = [Bidirectional(*(GRU(WIDTH, WIDTH // 2, dtype=DTYPE) for _ in range(2))) for _ in range(2)]
        readers = {"word_reader": both[0], "sentence_reader": both[1]}
    return Hierarchical(pool(1), pool(1, hidden=6), **readers)


def test_pooling_is_lins_equations():
    """A = softmax(W_s2 tanh(W_s1 Hᵀ)), M = A H."""
    _, features, valid = example()
    layer = pool(3, hidden=5)
    with record(layer) as seen:
        pooled = layer(features, valid)
    assert pooled.shape == (4, 3, WIDTH)
    for b in range(4):
        H = features[b, valid[b]]
        A = (layer.queries @ torch.tanh(H @ layer.attend.score.key.weight.T + layer.attend.score.key.bias).T).softmax(1)
        close(pooled[b], A @ H)
        close(seen["attend.weights"][b][:, valid[b]], A)
    assert fails(close, pooled[:, 0], pooled[:, 1])


@pytest.mark.parametrize("name", SCORES)
def test_any_score_can_pool(name):
    _, features, valid = example()
    layer = pool(score=make_score(name, WIDTH, WIDTH).double())
    clean, dirty = layer(features, valid), layer(poisoned(features, valid), valid)
    assert torch.equal(clean, dirty)
    assert (clean[1] == 0).all()


@pytest.mark.parametrize("with_readers", [False, True])
def test_a_document_is_pooled_level_by_level(with_readers):
    x, valid = document()
    layer = hierarchy(with_readers=with_readers)
    pooled = layer(x, valid)
    for b, count in ((0, 4), (2, 2)):
        vectors = []
        for p in range(count):
            words = x[b, p][valid[b, p]][None]
            vectors.append(layer.words(layer.word_reader(words)[0] if with_readers else words)[0])
        sentences = torch.cat(vectors)[None]
        close(pooled[b], layer.sentences(layer.sentence_reader(sentences)[0] if with_readers else sentences)[0, 0])
    assert (pooled[1] == 0).all()


@pytest.mark.parametrize("with_readers", [False, True])
def test_words_that_are_not_there_change_nothing(with_readers):
    x, valid = document()
    layer, results = hierarchy(with_readers=with_readers), []
    for given in (x, poisoned(x, valid)):
        given = given.clone().requires_grad_()
        pooled = layer(given, valid)
        results.append([pooled, *torch.autograd.grad(pooled.square().sum(), [given, *layer.parameters()])])
    for clean, dirty in zip(*results, strict=True):
        close(clean, dirty)
    assert fails(close, layer(x), results[0][0])


def test_capsules_are_their_equations():
    _, features, valid = example()
    torch.manual_seed(0)
    layer = Capsules(WIDTH, 3, dtype=DTYPE)
    probability, rebuilt = layer(poisoned(features, valid), valid)
    assert probability.shape == (4, 3)
    for b in (0, 2, 3):
        H = features[b, valid[b]]
        for i in range(3):
            v = (H @ layer.pool.queries[i]).softmax(0) @ H
            p = torch.sigmoid(layer.active[i] @ v + layer.bias[i])
            close(probability[b, i], p)
            close(rebuilt[b, i], p * v)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="rows: got 2 and 1, expected 1"):
        Hierarchical(pool(2), pool(1))
    with pytest.raises(ValueError, match=r"x: got shape \(3, 5, 4\), expected \(B, sentences, words, D\)"):
        hierarchy()(torch.zeros(3, 5, 4, dtype=DTYPE))
