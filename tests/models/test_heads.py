"""The seam between features and head: for every family of every model, and with another head."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import recollect as rc
from recollect.models import captioning, language, translation


def models():
    for family in language.FAMILIES[1:]:
        yield pytest.param(lambda family=family: (rc.LanguageModel(family, 11, width=16), None), id=family)
    for family in translation.FAMILIES:
        source = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7]])
        make = lambda family=family, source=source: (rc.Translator(family, 8, 11, width=16), source)  # noqa: E731
        yield pytest.param(make, id=f"translating {family}")
    yield pytest.param(lambda: (rc.MaskedModel(vocab_size=11, width=16, embedding=8), None), id="masked")
    for family in captioning.FAMILIES:
        make = lambda family=family: (rc.Captioner(family, 11, (8, 8, 3), width=16), torch.rand(2, 8, 8, 3))  # noqa: E731
        yield pytest.param(make, id=f"captioning {family}")


@pytest.mark.parametrize("make", list(models()))
def test_the_head_of_the_features_are_the_logits(make):
    torch.manual_seed(0)
    model, source = make()
    model = model.double().eval()
    source = source.double() if source is not None and source.is_floating_point() else source
    start = model.initial_memory(2) if source is None else model.remember(source)
    ids, valid = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[True] * 3, [True, True, False]])
    logits, after = model(ids, start, valid=valid)
    features, memory = model.features(ids, start, valid=valid)
    torch.testing.assert_close(model.head(features)[valid], logits[valid], rtol=1e-12, atol=1e-12)
    assert memory.equals(after, tol=1e-12)
    model.replace_head(nn.Linear(features.shape[2], 3).double())  # three labels instead of eleven symbols
    assert model(ids, start)[0].shape == (2, 3, 3)
    assert model.width_out == 3


def test_a_model_that_counts_has_no_features():
    model = rc.LanguageModel("markov", 11)
    with pytest.raises(rc.ContractError, match="a family with trained layers"):
        model.features(torch.tensor([[1]]))
    with pytest.raises(rc.ContractError, match="a family with trained layers"):
        _ = model.head
