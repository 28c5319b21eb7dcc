"""Translators of every family: the laws, independence of rows, generation and search, scores of pairs, bad input."""

from __future__ import annotations

import pytest
import torch

from recollect.core.compose import reverse_rows
from recollect.core.record import record
from recollect.core.validate import ContractError
from recollect.evaluation.phrase_score import score_pairs
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.laws.check import LAWS, check_layer
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.decoder_block import DecoderBlock
from recollect.layers.pointwise import FeedForward
from recollect.layers.recurrent.gru import GRU
from recollect.models.sizes import parts_of
from recollect.models.translation import FAMILIES, TranslationConfig, Translator
from searching import check_search
from tiers import slow_after

SOURCE, TARGET, BEGIN, END = 7, 6, 4, 5
VARIANTS: dict[str, dict] = {
    **{family: {"family": family} for family in FAMILIES},
    "sutskever gru, two layers": {"family": "sutskever", "cell": "gru", "layers": 2, "dropout": 0.5},
    "sutskever reversed": {"family": "sutskever", "reversed_source": True},
    "cho as published": {"family": "cho", "reset": "before", "maxout": True},
    **{f"static {way}": {"family": "static", "context": way} for way in ("projected", "mean", "max", "attention")},
    "static lstm, two layers": {"family": "static", "cell": "lstm", "layers": 2},
    "bahdanau maxout, two layers": {"family": "bahdanau", "layers": 2, "maxout": True, "dropout": 0.5},
    "bahdanau local": {"family": "bahdanau", "alignment": "local-predictive", "window": 2},
    "luong dot, two layers": {"family": "luong", "score": "dot", "layers": 2, "reversed_source": True, "dropout": 0.5},
    "luong concat": {"family": "luong", "score": "additive"},
    "luong local-m": {"family": "luong", "alignment": "local-monotonic", "window": 1},
    "luong local-p": {"family": "luong", "alignment": "local-predictive", "window": 2},
    "luong hard": {"family": "luong", "alignment": "hard"},
    "luong without feeding": {"family": "luong", "input_feeding": False, "alignment": "local-monotonic", "window": 1},
    "transformer pre-norm": {"family": "transformer", "norm": "pre", "layers": 2, "dropout": 0.5, "activation": "gelu"},
    "transformer tied": {"family": "transformer", "tied": True},
}
SOURCES = torch.tensor([[1, 2, 3, 4, 5], [6, 0, 0, 0, 0], [0, 0, 0, 0, 0], [3, 3, 1, 0, 0]])
LENGTHS = torch.tensor([5, 1, 0, 3])
VALID = torch.arange(5) < LENGTHS[:, None]


def small(name: str, **options) -> Translator:
    torch.manual_seed(0)
    shape = {"source_vocab": SOURCE, "target_vocab": TARGET, "width": 8, "hidden": 8, "heads": 2}
    model = Translator(TranslationConfig(**{**shape, **VARIANTS[name], **options})).double()
    with torch.no_grad():  # so that source and target matter for what comes next
        for p in model.parameters():
            p.mul_(2 if p.dim() > 1 else 1)
    return model.eval()


@pytest.mark.parametrize("name", slow_after(6, VARIANTS))
def test_every_family_keeps_the_laws(name):
    model = small(name)
    targets = torch.randint(TARGET, (3, 6), generator=torch.Generator().manual_seed(1))
    # The other laws look at what a family's variants share.
    laws = LAWS if name in FAMILIES else ("split", "padding", "rows", "gradients", "reference")
    check_layer(model, targets, model.remember(SOURCES[:3], VALID[:3]), laws=laws)


def test_a_decoders_block_keeps_the_laws_with_any_mixer():
    torch.manual_seed(0)
    block = DecoderBlock(GRU(8, 8), CrossAttention(8, 2, source_width=3), FeedForward(8), norm="pre").double()
    source = torch.randn(3, 5, 3, dtype=torch.float64).masked_fill(~VALID[:3, :, None], torch.nan)
    check_layer(block, memory=block.remember(source, VALID[:3]))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_depends_on_neither_the_batch_nor_the_padding(name):
    model = small(name)
    targets = torch.randint(TARGET, (4, 6), generator=torch.Generator().manual_seed(1))
    others = torch.where(VALID, SOURCES, 6)  # what stands in the padding must not matter
    logits, _ = model(targets, model.remember(others, VALID))
    for row, length in enumerate(LENGTHS.tolist()):
        alone, _ = model(targets[row : row + 1], model.remember(SOURCES[row : row + 1, :length]))
        torch.testing.assert_close(logits[row : row + 1], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_source_matters(name):
    """Also its last symbol and its order: a decoder that cannot see them would pass all other tests."""
    model = small(name)
    targets = torch.tensor([[BEGIN, 1]])
    plain, changed, turned = (
        model(targets, model.remember(torch.tensor([ids])))[0] for ids in ([1, 2, 3], [1, 2, 4], [3, 2, 1])
    )
    assert (plain - changed).abs().max() > 1e-6
    assert (plain - turned).abs().max() > 1e-6


@pytest.mark.parametrize("name", VARIANTS)
def test_greedy_is_the_argmax_of_reading_everything_anew(name):
    model = small(name)
    said = generate(model, [[]] * 4, Settings(tokens=6, greedy=True, begin=BEGIN), model.remember(SOURCES, VALID))
    for row, found in enumerate(said):
        ids = [BEGIN]
        for _ in range(6):
            memory = model.remember(SOURCES[row : row + 1], VALID[row : row + 1])
            ids.append(int(model(torch.tensor([ids]), memory)[0][0, -1].argmax()))
        assert found.ids == ids[1:]


@pytest.mark.parametrize("name", VARIANTS)
def test_beam_search_of_one_is_greedy_and_batches_do_not_matter(name):
    model = small(name)
    check_search(model, model.remember(SOURCES, VALID), BEGIN, END)


@pytest.mark.parametrize("name", VARIANTS)
def test_reordering_leaves_the_source_where_it_is(name):
    model = small(name)
    _, memory = model(torch.tensor([[BEGIN, 1]] * 2), model.remember(SOURCES[:1].expand(2, -1)))
    kept = [t for name, t in memory.tensors().items() if "source" in name]
    moved = [t for name, t in memory.reorder([1, 0]).tensors().items() if "source" in name]
    assert all(a is b for a, b in zip(kept, moved, strict=True))
    assert bool(kept) == (not name.startswith("sutskever"))


@pytest.mark.parametrize("name", VARIANTS)
def test_pairs_are_scored_by_the_chain_rule(name):
    model = small(name)
    targets = [[1, 2, 3], [], [0], [3, 3]]
    sources = [row[:length].tolist() for row, length in zip(SOURCES, LENGTHS.tolist(), strict=True)]
    scores = score_pairs(model, sources, targets, BEGIN, END, batch_size=3)
    for source, target, found in zip(sources, targets, scores, strict=True):
        memory = model.remember(torch.tensor([source], dtype=torch.long).reshape(1, len(source)))
        logprobs = model(torch.tensor([[BEGIN, *target]]), memory)[0].log_softmax(-1)[0]
        assert found == pytest.approx(sum(logprobs[t, y].item() for t, y in enumerate([*target, END])), rel=1e-9)


def test_all_targets_of_a_source_have_probability_one():
    """Every target of up to five ids over two symbols, and all longer ones through those that have not ended yet."""
    model = small("cho", target_vocab=3)
    targets = [[]]
    total = 0.0
    for _ in range(5):
        total += torch.tensor(score_pairs(model, [[1, 2]] * len(targets), targets, 2, 2)).exp().sum().item()
        targets = [[*target, y] for target in targets for y in (0, 1)]
    memory = model.remember(torch.tensor([[1, 2]])).select([0] * len(targets))
    read = torch.tensor([[2, *target] for target in targets])
    logprobs = model(read[:, :-1], memory)[0].log_softmax(-1).gather(2, read[:, 1:, None])
    assert total + logprobs.sum((1, 2)).exp().sum().item() == pytest.approx(1)


@pytest.mark.parametrize("family", ["sutskever", "luong"])
def test_a_reversed_source_is_each_rows_own_prefix_backwards(family):
    plain, backwards = small(family), small(family, reversed_source=True)
    targets = torch.tensor([[BEGIN, 1, 2]] * 4)
    turned, _ = plain(targets, plain.remember(reverse_rows(SOURCES, VALID), VALID))
    ours, _ = backwards(targets, backwards.remember(SOURCES, VALID))
    torch.testing.assert_close(ours, turned, rtol=1e-10, atol=1e-10)


def test_a_reversed_source_is_attended_to_in_its_own_order():
    """Local attention around step t of the sentence, not of what was read."""
    model = small("luong local-m", reversed_source=True)
    with record(model) as seen:
        model(torch.tensor([[BEGIN]]), model.remember(SOURCES[:1]))
    assert (seen["decoder.attend.weights"][0, 0] > 0).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["bahdanau", "luong", "luong without feeding"])
def test_attention_is_recorded_step_by_step(name):
    model = small(name)
    with record(model) as seen:
        model(torch.tensor([[BEGIN, 1, 2]] * 4), model.remember(SOURCES, VALID))
    weights = seen["decoder.attend.weights"]
    assert len(seen.calls["decoder.attend.weights"]) == (1 if name == "luong without feeding" else 3)
    assert weights.shape == (4, 3, 5)
    assert (weights.masked_fill(VALID[:, None], 0) == 0).all()
    if name != "luong without feeding":
        torch.testing.assert_close(weights.sum(2), (LENGTHS > 0).double()[:, None].expand(-1, 3))


@pytest.mark.parametrize("way", ["last", "mean", "max"])
def test_static_contexts_are_what_they_say(way):
    model = small("static", context=way)
    features, _ = model.encoder(SOURCES, valid=VALID)
    contexts = model.remember(SOURCES, VALID).source.context
    ways = {"last": lambda s: s[-1], "mean": lambda s: s.mean(0), "max": lambda s: s.max(0).values}
    for row, length in enumerate(LENGTHS.tolist()):
        wanted = ways[way](features[row, :length]) if length else torch.zeros(8, dtype=torch.float64)
        torch.testing.assert_close(contexts[row], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_counted_without_being_made(name):
    model = small(name)
    assert parts_of(model.config).total == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_tied_and_shared_weights_are_one_tensor(family):
    options = {"source_vocab": TARGET, "tied": True, "shared": True}
    model = small(family, **options)
    assert model.decoder.out.weight is model.decoder.embedding.table.weight is model.encoder.embedding.table.weight
    free = small(family, source_vocab=TARGET)
    saved = parts_of(free.config).total - parts_of(model.config).total
    assert saved == 2 * TARGET * 8


def test_the_first_transformers_size():
    """Vaswani et al. 2017, base: counted from the paper's shapes, with biases and 37,000 shared symbols."""
    config = TranslationConfig(
        "transformer", 37_000, 37_000, width=512, hidden=2048, layers=6, heads=8, tied=True, shared=True
    )
    attention, feed_forward, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    blocks = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert parts_of(config).total == 37_000 * 512 + 37_000 + blocks


def test_what_cannot_be_is_refused():
    model = small("bahdanau")
    with pytest.raises(ContractError, match=r"memory: got None, expected .* model\.remember\(source, valid\)"):
        model(torch.tensor([[BEGIN]]))
    with pytest.raises(ContractError, match="memory: got Attending, expected Summarised"):
        small("cho")(torch.tensor([[BEGIN]]), model.remember(SOURCES[:1]))
    with pytest.raises(ContractError, match="memory: got Summarised, expected Attending"):
        model(torch.tensor([[BEGIN]]), small("cho").remember(SOURCES[:1]))
    with pytest.raises(ContractError, match=r"memory\..*: got shape .* the batch of x has 2 rows"):
        model(torch.tensor([[BEGIN]] * 2), model.remember(SOURCES[:1]))
    with pytest.raises(ContractError, match=r"memory.source.context: got shape \(1, 8\), expected \(2, 8\)"):
        small("cho")(torch.tensor([[BEGIN]] * 2), small("cho").remember(SOURCES[:1]))
    with pytest.raises(ContractError, match="sources: got ids from 1 to 9, expected 0 to 6"):
        score_pairs(model, [[1, 9]], [[1]], BEGIN, END)
    with pytest.raises(ContractError, match="targets: got 2 of them, expected 1"):
        score_pairs(model, [[1]], [[1], [2]], BEGIN, END)


def test_configs_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="family: got 'cha', expected one of sutskever, cho"):
        TranslationConfig("cha", 7, 6)
    with pytest.raises(ValueError, match="context: got 'sum', expected one of last"):
        TranslationConfig("static", 7, 6, context="sum")
    with pytest.raises(ValueError, match="alignment: got 'local', expected one of soft, hard, local-monotonic"):
        TranslationConfig("luong", 7, 6, alignment="local")
    with pytest.raises(ContractError, match="shared: got True with vocabularies of 7 and 6"):
        TranslationConfig("cho", 7, 6, shared=True)
    with pytest.raises(ContractError, match="tied: got True with an output of width 5, expected hidden=8"):
        Translator(TranslationConfig("sutskever", 7, 6, width=8, hidden=5, tied=True))
    with pytest.raises(ValueError, match="score: got 'generl'"):
        Translator(TranslationConfig("luong", 7, 6, score="generl"))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_learns_from_the_loss(name):
    model = small(name).train()
    logits, _ = model(torch.tensor([[BEGIN, 1, 2]] * 4), model.remember(SOURCES, VALID))
    logits.log_softmax(-1)[:, :, 1].sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
