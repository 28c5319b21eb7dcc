"""LoRA, frozen and unfrozen stages, and rates by layer: what is trained when, and how fast."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.training.lora import merge_lora
from recollect.training.optimizer import Optimizer
from recollect.training.transfer import Transfer

FAMILIES = ("rnn", "gru", "lstm", "transformer", "linear-attention", "ttt-linear")


def language(family, **options):
    torch.manual_seed(1)
    return rc.LanguageModel(family, 11, width=8, layers=2, heads=2, **options)


def classifier(parent):
    return rc.Classifier(parent, labels=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_begins_from_the_weights_and_merges_into_them(family):
    model = classifier(language(family))
    ids = torch.randint(11, (3, 7))
    before = model.classify(ids)
    names = set(dict(model.named_parameters()))
    Transfer(lora_rank=2).prepare(model)
    torch.testing.assert_close(model.classify(ids), before)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained - {"out.weight", "out.bias"}
    assert all("parametrizations" in name or name.startswith("out.") for name in trained)
    optimizer = Optimizer(rate=0.05, warmup=0).build(model, Transfer(lora_rank=2).groups(model))
    for _ in range(3):
        optimizer.zero_grad()
        model.classify(ids).square().sum().backward()
        optimizer.step()
    adapted = model.classify(ids)
    assert (adapted - before).abs().max() > 1e-3
    merge_lora(model)
    torch.testing.assert_close(model.classify(ids), adapted)
    assert set(dict(model.named_parameters())) == names


def test_lora_is_w_plus_alpha_over_r_times_b_a():
    model = classifier(language("transformer"))
    weight = model.encoder[0].mixer.qkv.weight.detach().clone()
    Transfer(lora_rank=2, lora_alpha=6.0, lora_targets="qkv").prepare(model)
    added = model.encoder[0].mixer.qkv.parametrizations.weight[0]
    torch.nn.init.normal_(added.b)
    torch.testing.assert_close(model.encoder[0].mixer.qkv.weight, weight + 3 * added.b @ added.a)
    with pytest.raises(rc.SettingError, match=r"lora_targets: got 'qvk', expected some of .*did you mean qkv"):
        Transfer(lora_rank=2, lora_targets="qvk").prepare(classifier(language("transformer")))


def test_stages_are_unfrozen_from_the_top_and_rates_fall_to_the_bottom():
    model = classifier(language("lstm"))
    transfer = Transfer(unfreeze=0.6, layer_decay=0.5, head_factor=2.0)
    how = Optimizer(rate=0.1, schedule="constant", warmup=0)
    optimizer = how.build(model, transfer.groups(model))

    def trained():
        return {
            name.split(".")[0] if "encoder" not in name else name[:16]
            for name, p in model.named_parameters()
            if p.requires_grad
        }

    stages = ["out", "encoder.layers.1", "encoder.layers.0", "embedding"]
    for count, share in enumerate((0.0, 0.2, 0.4, 0.6), 1):
        how.unfreeze(optimizer, share)
        assert trained() == set(stages[:count])
    assert not how.unfreeze(optimizer, 0.7)
    how.set_rates(optimizer, 0.1)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    found = [
        rates[id(dict(model.named_parameters())[name])]
        for name in ("out.weight", "encoder.layers.1.weight_ih", "encoder.layers.0.weight_ih", "embedding.table.weight")
    ]
    assert found == pytest.approx([0.2, 0.05, 0.025, 0.0125])


def test_frozen_layers_are_no_part_of_the_optimizer_and_do_not_move():
    model = classifier(language("transformer"))
    Transfer(frozen=True).prepare(model)
    optimizer = Optimizer().build(model, Transfer(frozen=True).groups(model))
    assert sum(p.numel() for group in optimizer.param_groups for p in group["params"]) == 8 * 3 + 3
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.classify(torch.randint(11, (3, 7))).sum().backward()
    optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"out.weight", "out.bias"}
    with pytest.raises(rc.SettingError, match="frozen: got true with lora_rank or unfreeze"):
        Transfer(frozen=True, lora_rank=2)
    with pytest.raises(rc.SettingError, match=r"layer_decay: got 0\.5, but frozen layers have no rate; leave it out"):
        Transfer(frozen=True, layer_decay=0.5)
