"""The masked language model: its heads, its segments, its padding, and what ALBERT shares."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.models.parameters import count_apart

BERT = {"vocab_size": 11, "width": 16, "heads": 2, "max_length": 9, "dropout": 0.0}


def make(**options) -> rc.MaskedModel:
    torch.manual_seed(0)
    return rc.MaskedModel(**(BERT | options)).double().eval()


def test_every_symbol_depends_on_both_sides_and_on_no_padding():
    model = make()
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    logits, _ = model(ids)
    for place in (0, 4):
        changed = ids.clone()
        changed[0, place] = 7
        assert (model(changed)[0] - logits).abs().amax(2).min() > 1e-9
    padded, _ = model(torch.tensor([[1, 2, 3, 4, 5, 99, -3]]), valid=torch.arange(7)[None] < 5)
    torch.testing.assert_close(padded[:, :5], logits, rtol=0, atol=1e-12)
    assert not padded[:, 5:].any()


def test_a_prediction_of_some_steps_is_that_of_all():
    model = make()
    ids = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(model.predict(model.encode(ids)[:, [2]]), model(ids)[0][:, [2]], rtol=0, atol=1e-12)


def test_segments_change_the_reading_and_begin_as_the_first():
    model = make()
    ids = torch.tensor([[1, 2, 3, 4]])
    alone = model.encode(ids)
    assert torch.equal(alone, model.encode(ids, segments=torch.zeros_like(ids)))
    assert not torch.allclose(alone, model.encode(ids, segments=torch.tensor([[0, 0, 1, 1]])))
    with pytest.raises(rc.ContractError, match=r"segments: got shape \(1, 2\), expected \(1, 4\)"):
        model.encode(ids, segments=torch.zeros(1, 2, dtype=torch.long))


def test_shared_layers_and_factored_embeddings_cost_fewer_parameters():
    full, small = (rc.MaskedConfig(**BERT, layers=4, **more) for more in ({}, {"shared": True, "embedding": 4}))
    assert make(layers=4, shared=True, embedding=4).body[-1].times == 4
    norms, attention, forward = 2 * 2 * 16, 4 * (16 * 16 + 16), 2 * 16 * 64 + 64 + 16
    block = norms + attention + forward
    head = 16 * 16 + 16 + 2 * 16 + 11
    assert count_apart(rc.MaskedModel(full)).total == (11 + 9 + 2) * 16 + 2 * 16 + 4 * block + head
    head = 16 * 4 + 4 + 2 * 4 + 11
    assert count_apart(rc.MaskedModel(small)).total == (11 + 9 + 2) * 4 + 2 * 4 + 4 * 16 + 16 + block + head


def test_the_embedding_is_the_map_to_the_vocabulary():
    model = make()
    assert model.head.weight is model.embedding.table.weight


def test_parts_that_are_not_there_are_refused_by_name():
    model = make(masked=False)
    assert model(torch.tensor([[1, 2]]))[0].shape == (1, 2, 16)
    encoded = model.encode(torch.tensor([[1, 2]]))
    for use, name in ((model.predict, "masked"), (model.pool, "pooled"), (model.follows, "next_sentence")):
        with pytest.raises(rc.ContractError, match=f"MaskedConfig.*{name}=True"):
            use(encoded)
    with pytest.raises(rc.ContractError, match="next_sentence: got True without pooled"):
        rc.MaskedConfig(next_sentence=True)
    with pytest.raises(rc.SettingError, match="activation: got"):
        rc.MaskedConfig(activation="swish")


def test_a_text_longer_than_the_table_is_refused():
    with pytest.raises(rc.ContractError, match="at most 9 learned positions"):
        make()(torch.zeros(1, 10, dtype=torch.long))
