"""Language models of every family: they keep the laws, have the sizes they say, and share weights where asked."""

from __future__ import annotations

import pytest
import torch

from recollect.laws.check import check_layer
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.models.parameters import count_apart
from recollect.models.sizes import TARGETS, gpt2_small, nanogpt_char, parts_of, sized, zaremba
from tiers import slow_after

GPT2 = {"max_length": 200, "activation": "gelu_tanh", "head_bias": False, "tied": True}
LLAMA = {"kv_heads": 1, "norm_kind": "rms", "activation": "swiglu", "bias": False, "rotary_base": 500.0}
NEURAL = [family for family in FAMILIES if family != "markov"]


def small(family: str, **options) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig(family, 11, width=8, heads=2, **options)).double()
    if family == "markov":
        model.body.count(torch.randint(11, (4, 50)))
    return model


@pytest.mark.parametrize("family", slow_after(len(FAMILIES) - 2, FAMILIES))
def test_every_family_keeps_the_laws(family):
    check_layer(small(family))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"max_length": 200}, {"window": 5}, {"tied": True, "dropout": 0.3}, GPT2, LLAMA], ids=str
)
def test_transformers_of_all_kinds_keep_the_laws(options):
    check_layer(small("transformer", **options))


@pytest.mark.parametrize("family", FAMILIES)
def test_memories_of_bounded_size_are_carried(family):
    assert small(family).carries == (family != "transformer")
    assert small("transformer", window=4).carries


@pytest.mark.parametrize("vocab_size", [65, 50_000])
@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("family", NEURAL)
def test_a_size_is_the_same_body_for_all_families_and_vocabularies(family, size, vocab_size):
    config = sized(family, vocab_size, size)
    with torch.device("meta"):
        model = LanguageModel(config)
    first, last = model.body[0], model.body[-1]
    ends = sum(p.numel() for layer in (first, last) for p in layer.parameters())
    body = sum(p.numel() for layer in model.body[1:-1] for p in layer.parameters())
    assert abs(body / TARGETS[size] - 1) <= 0.05
    assert (count_apart(model).body, count_apart(model).vocabulary) == (body, ends)
    assert config == sized(family, vocab_size, size, layers=config.layers)


@pytest.mark.parametrize("family", NEURAL)
def test_all_parameters_can_be_made_equal_too(family):
    config = sized(family, 1000, "small", parameters=500_000)
    assert abs(parts_of(config).total / 500_000 - 1) <= 0.05


def test_settings_too_large_for_a_size_are_refused_by_name():
    with pytest.raises(ValueError, match=r"size=tiny, heads=256: at least .* in the body .* expected 250,000"):
        sized("transformer", 65, "tiny", heads=256)
    with pytest.raises(ValueError, match=r"size=tiny: at least .* parameters at these settings, expected 9,000"):
        sized("lstm", 50_000, "tiny", parameters=9_000)


def test_parameters_of_markov_are_none():
    assert count_apart(small("markov")).total == 0


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="size: got 'huge', expected one of tiny, small, base"):
        sized("lstm", 65, "huge")
    with pytest.raises(ValueError, match="family: got 'lsmt', expected one of markov, window, rnn"):
        LanguageConfig("lsmt", 65)
    with pytest.raises(ValueError, match="tied: got True with family 'markov'"):
        LanguageModel(LanguageConfig("markov", 65, tied=True))


def test_tied_weights_are_one_tensor():
    model = small("lstm", tied=True)
    assert model.body[0].table.weight is model.body[len(model.body) - 1].linear.weight
    free = LanguageConfig("lstm", 11, width=8)
    assert parts_of(free).total - parts_of(model.config).total == 11 * 8


def test_published_sizes():
    """Counted from the papers' and repositories' own shapes; ours have two biases in an LSTM, and biases in GPT."""
    assert parts_of(zaremba("small")).total == 10_000 * 200 * 2 + 10_000 + 2 * 4 * 200 * (200 + 200 + 2)
    blocks = 6 * (4 * (384 * 384 + 384) + 2 * 4 * 384 * 384 + 5 * 384 + 4 * 384)
    assert parts_of(nanogpt_char()).total == 65 * 384 + 65 + 256 * 384 + blocks + 2 * 384
    assert parts_of(gpt2_small()).total == 124_439_808 + 50_257  # GPT-2 has no bias at its output


def test_blocks_begin_small():
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig("transformer", 50, width=64, layers=4))
    assert model.body[0].table.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.body[1].feed_forward.down.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.1)
    logits, _ = model(torch.randint(50, (2, 9)))
    assert torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(50, (18,))) < 4.2  # ln 50 is 3.9
