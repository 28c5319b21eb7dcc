"""Classifiers and taggers of every family obey the contract; pools, heads, and encoders taken from other models."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.models.classification import CLASSIFIERS, POOLINGS, classifier_settings
from recollect.models.context_free import BagOfWords, Majority
from recollect.models.encoding import ENCODERS
from recollect.models.tagging import tagger_settings
from tiers import slow_after

SMALL = {"width": 8, "heads": 2, "labels": 3}
ONE_WAY = [f for f in ENCODERS if f not in ("birnn", "bigru", "bilstm", "cnn", "bert")]


def classifier(family, **options):
    torch.manual_seed(0)
    return rc.Classifier(rc.ClassifierConfig(family, 11, **SMALL, **options)).double().eval()


@pytest.mark.parametrize("family", slow_after(1, ("cnn", "per-word", *(f for f in ENCODERS if f != "cnn"))))
def test_every_family_is_a_lawful_classifier_and_tagger(family):
    model = classifier(family, pooling="mean")
    rc.check_layer(model)
    assert model.streams == (family in ONE_WAY or family == "per-word")
    rc.check_layer(rc.Tagger(rc.TaggerConfig(family, 11, **SMALL, crf=True)).double())


@pytest.mark.parametrize("family", ["lstm", "bigru", "bert", "transformer"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_last_step_holds_the_label_of_the_whole(family, pooling):
    model = classifier(family, pooling=pooling)
    ids, valid = rc.pad([torch.tensor(row) for row in ([1, 2, 3, 4], [5, 6], [7])])
    y, _ = model(ids, valid=valid)
    whole = model.classify(ids, valid)
    for row, length in enumerate((4, 2, 1)):
        torch.testing.assert_close(y[row, length - 1], whole[row])
        torch.testing.assert_close(model.classify(ids[row : row + 1, :length])[0], whole[row])
    features, _ = model.features(ids, valid=valid)
    torch.testing.assert_close(model.head(features)[0], y[0])


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["max", "attention"])
def test_pools_stream_within_a_classifier(pooling):
    rc.check_layer(classifier("gru", pooling=pooling))


def test_the_last_of_both_directions_is_where_each_ends():
    torch.manual_seed(0)
    both = rc.Bidirectional(rc.GRU(4, 5), rc.GRU(4, 5))
    model = rc.Classifier(both, labels=2, pooling="last").eval()
    x, valid = torch.randn(2, 6, 4), torch.arange(6) < torch.tensor([[6], [3]])
    _y, memory = both(x, valid=valid)
    expected = torch.cat([memory.forward.hidden, memory.backward.hidden], 1)
    torch.testing.assert_close(model.pooled(x.masked_fill(~valid[..., None], 0), valid=valid)[0], expected)


def test_an_encoder_is_taken_from_a_language_model_or_a_stack():
    language = rc.LanguageModel("lstm", 20, width=8).eval()
    ids = torch.randint(20, (2, 5))
    model = rc.Tagger(language, labels=4).eval()
    torch.testing.assert_close(model.features(ids)[0], language.features(ids)[0])
    assert model.embedding is language.body[0]
    stack = rc.Stack(rc.Embedding(20, 8), rc.GRU(8, 6))
    assert rc.Classifier(stack, labels=2).classify(ids).shape == (2, 2)
    model.replace_head(torch.nn.Linear(8, 7))
    assert model(ids)[0].shape == (2, 5, 7)
    with pytest.raises(rc.ContractError, match="which counts"):
        rc.Classifier(rc.LanguageModel("markov", 20), labels=2)
    with pytest.raises(rc.ContractError, match="a Stack that begins with an Embedding"):
        rc.Classifier(rc.Embedding(20, 8), labels=2)
    with pytest.raises(rc.ContractError, match="labels"):
        rc.Classifier(rc.LSTM(4, 4))


def test_a_language_models_weights_fit_an_encoder_of_its_settings():
    language = rc.LanguageModel("transformer", 20, width=8, heads=2, max_length=16)
    config = rc.ClassifierConfig(**vars(language.config), labels=3, pooling="attention")
    ours, theirs = rc.Classifier(config), rc.Classifier(language, labels=3, pooling="attention")
    ours.load_state_dict(theirs.state_dict())


def test_letters_reach_the_scores():
    model = rc.Tagger(rc.TaggerConfig("bigru", 11, **SMALL, letters=5)).eval()
    x = torch.tensor([[[1, 1, 2, 0], [2, 3, 0, 0]]])
    other = x.clone()
    other[0, 0, 1] = 4
    assert not torch.equal(model(x)[0], model(other)[0])
    model = classifier("cnn", letters=5)
    assert not torch.equal(model.classify(x), model.classify(other))


def test_hidden_words_are_unknown_in_training_only():
    torch.manual_seed(0)
    model = classifier("per-word", word_dropout=0.99)
    ids = torch.randint(10, (4, 30))
    unknown = model.classify(torch.full_like(ids, 10))
    assert not torch.allclose(model.classify(ids), unknown)
    model.train()
    assert (model.embed(ids, None) == model.embedding.table.weight[10]).all(-1).double().mean() > 0.9


def test_majorities_are_counted():
    model = Majority(rc.TaggerConfig("majority", 5, labels=3), reads_words=True)
    model.count(torch.tensor([0, 1, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 1, 3, 3]))
    tags, _ = model.tags(torch.tensor([[0, 1, 3, 4]]))
    assert tags.tolist() == [[0, 1, 2, 2]]  # word 4 was never counted: the most frequent of all
    rc.check_layer(model.double(), laws=("split", "padding", "rows", "purity", "causality"))
    overall = Majority(rc.ClassifierConfig("majority", 5, labels=2), reads_words=False)
    assert overall.classify(torch.tensor([[1]])).exp().tolist() == [[0.5, 0.5]]
    overall.count(torch.tensor([0, 1, 1, 1]))
    assert overall.classify(torch.tensor([[1], [2]])).exp().tolist() == [[0.25, 0.75]] * 2
    with pytest.raises(rc.ContractError, match="reads no context"):
        overall.features(torch.tensor([[1]]))


def test_a_bag_of_words_is_lawful_and_blind_to_order():
    model = BagOfWords(rc.ClassifierConfig("bag-of-words", 6, labels=2)).double()
    torch.nn.init.normal_(model.votes.weight)
    rc.check_layer(model)
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model.classify(ids), model.classify(ids.flip(1)))
    torch.testing.assert_close(model(ids)[0][:, -1], model.classify(ids))


def test_every_setting_of_a_family_is_declared():
    for family in CLASSIFIERS:
        names = classifier_settings(family)
        assert set(names) <= set(rc.ClassifierConfig.__dataclass_fields__), family
        assert set(tagger_settings(family)) <= set(rc.TaggerConfig.__dataclass_fields__), family
    with pytest.raises(ValueError, match="did you mean bilstm"):
        rc.TaggerConfig("bi-lstm", 5)


def test_a_bag_of_ngrams_is_lawful_and_reads_a_set():
    model = rc.BagOfNGrams(family="bag-of-ngrams", vocab_size=6, labels=3, ngrams=3, buckets=4096).double()
    torch.nn.init.normal_(model.votes.weight)
    model.count(torch.randint(6, (8, 9)), torch.randint(3, (8,)))
    rc.check_layer(model)
    once = torch.tensor([[1, 2, 3]])
    grams, occurs = model.grams(torch.tensor([[1, 2, 3, 1, 2, 3]]))
    assert occurs.sum() == 3 + 3 + 3  # 1 2 3, 12 23 31, 123 231 312, each once
    assert grams.shape == (1, 6 + 5 + 4)
    valid = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(model.classify(torch.tensor([[1, 2, 3, 1]]), valid), model.classify(once))
    assert not torch.allclose(model.classify(once), model.classify(once.flip(1)))  # the order within n-grams counts
    assert model.classify(torch.tensor([[2]])).shape == (1, 3)


def test_ratios_are_those_of_naive_bayes():
    """They are ln (p(g | c) / p(g | not c)), by scikit-learn's two ways of counting."""
    from sklearn.naive_bayes import ComplementNB, MultinomialNB

    torch.manual_seed(0)
    model = rc.BagOfNGrams(family="bag-of-ngrams", vocab_size=7, labels=3, ngrams=1).double()
    x, labels = torch.randint(7, (40, 5)), torch.randint(3, (40,))
    model.count(x[:25], labels[:25])
    model.count(x[25:], labels[25:])
    occurs = torch.zeros(40, 7).scatter_(1, x, 1.0).numpy()
    own = MultinomialNB().fit(occurs, labels).feature_log_prob_
    others = ComplementNB().fit(occurs, labels).feature_log_prob_  # −ln p(g | not c)
    torch.testing.assert_close(model.ratios.T, torch.from_numpy(own + others))
