"""Encoder–decoders against others: torch.nn's Transformer layers, and loops written from the papers' equations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.models.translation import TranslationConfig, Translator

WIDTH, HEADS, HIDDEN, DEPTH = 8, 2, 12, 2
LENGTHS = torch.tensor([4, 2, 5])
VALID = torch.arange(5) < LENGTHS[:, None]
SOURCE = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
TARGET = torch.randint(6, (3, 4), generator=torch.Generator().manual_seed(2))


def translator(family: str, **options) -> Translator:
    torch.manual_seed(0)
    shape = {"width": WIDTH, "hidden": HIDDEN, "heads": HEADS, "layers": 1, **options}
    return Translator(TranslationConfig(family, 7, 6, **shape)).double()


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# ---- the Transformer ---------------------------------------------------------------------------------


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    products = [ours.qkv] if isinstance(ours, SelfAttention) else [ours.query, ours.key_value]
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in products]))
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in products]))
    theirs.out_proj.weight.copy_(ours.out.weight)
    theirs.out_proj.bias.copy_(ours.out.bias)


def copy_block(ours, theirs) -> None:
    norms = [ours.mixer_norm, *([ours.cross_norm] if hasattr(ours, "cross") else []), ours.feed_forward_norm]
    copy_attention(ours.mixer, theirs.self_attn)
    if hasattr(ours, "cross"):
        copy_attention(ours.cross, theirs.multihead_attn)
    pairs = [(ours.feed_forward.up, theirs.linear1), (ours.feed_forward.down, theirs.linear2)]
    pairs += [(norm.norm, getattr(theirs, f"norm{i + 1}")) for i, norm in enumerate(norms)]
    for a, b in pairs:
        b.load_state_dict(a.state_dict())


def torch_halves(model: Translator, norm_first: bool) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    last = [nn.LayerNorm(WIDTH, dtype=torch.float64) if norm_first else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, **options), DEPTH, last[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, HIDDEN, **options), DEPTH, last[1])
    with torch.no_grad():
        for ours, theirs in ((model.encoder, encoder), (model.decoder, decoder)):
            blocks = [layer for layer in ours.body if hasattr(layer, "mixer")]
            for block, layer in zip(blocks, theirs.layers, strict=True):
                copy_block(block, layer)
    return encoder, decoder


def positions(steps: int) -> torch.Tensor:
    """Vaswani et al. 2017, section 3.5, entry by entry."""
    table = torch.zeros(steps, WIDTH, dtype=torch.float64)
    for t in range(steps):
        for i in range(0, WIDTH, 2):
            angle = torch.tensor(t / 10000 ** (i / WIDTH), dtype=torch.float64)
            table[t, i], table[t, i + 1] = angle.sin(), angle.cos()
    return table


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_transformer_equals_torch(norm):
    model = translator("transformer", layers=DEPTH, norm=norm)
    encoder, decoder = torch_halves(model, norm == "pre")
    tables = [half.embedding.table.weight.detach().clone().requires_grad_() for half in (model.encoder, model.decoder)]
    embedded = [
        F.embedding(ids, table) * WIDTH**0.5 + positions(ids.shape[1])
        for ids, table in zip((SOURCE, TARGET), tables, strict=True)
    ]
    features = encoder(embedded[0], src_key_padding_mask=~VALID)
    ahead = nn.Transformer.generate_square_subsequent_mask(TARGET.shape[1], dtype=torch.float64)
    said = decoder(embedded[1], features, tgt_mask=ahead, memory_key_padding_mask=~VALID, tgt_is_causal=True)
    theirs = F.linear(said, model.decoder.out.weight.detach(), model.decoder.out.bias.detach())
    ours, _ = model(TARGET, model.remember(SOURCE, VALID))
    assert_same(ours, theirs)
    weights = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    for half, table in zip((model.encoder, model.decoder), tables, strict=True):
        assert_same(half.embedding.table.weight.grad, table.grad)
    compare_gradients(model, encoder, decoder)


def compare_gradients(model: Translator, encoder: nn.TransformerEncoder, decoder: nn.TransformerDecoder) -> None:
    for ours, theirs in ((model.encoder, encoder), (model.decoder, decoder)):
        blocks = [layer for layer in ours.body if hasattr(layer, "mixer")]
        for block, layer in zip(blocks, theirs.layers, strict=True):
            assert_same(block.mixer.qkv.weight.grad, layer.self_attn.in_proj_weight.grad)
            assert_same(block.feed_forward.up.weight.grad, layer.linear1.weight.grad)
            assert_same(block.mixer_norm.norm.weight.grad, layer.norm1.weight.grad)
            if hasattr(block, "cross"):
                both = torch.cat([block.cross.query.weight.grad, block.cross.key_value.weight.grad])
                assert_same(both, layer.multihead_attn.in_proj_weight.grad)


# ---- loops from the papers ---------------------------------------------------------------------------


def gru_cell(cell, x, h):
    """torch's own cell, from the same weights."""
    return torch.gru_cell(x, h, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)


def one_row(row: int) -> torch.Tensor:
    return SOURCE[row, : LENGTHS[row]]


@pytest.mark.parametrize("maxout", [False, True])
def test_bahdanau_equals_a_naive_loop(maxout):
    model = translator("bahdanau", maxout=maxout)
    logits, _ = model(TARGET, model.remember(SOURCE, VALID))
    for row in range(3):
        assert_same(logits[row], naive_bahdanau(model, one_row(row), TARGET[row], maxout))


def naive_bahdanau(model: Translator, source, target, maxout: bool):
    encoder, decoder = model.encoder, model.decoder
    ahead, back = encoder.cells[0].forwards, encoder.cells[0].backwards
    e = encoder.embedding.table.weight[source]
    h, forward, backward = torch.zeros(HIDDEN, dtype=torch.float64), [], []
    for x in e:
        h = gru_cell(ahead, x[None], h[None])[0]
        forward.append(h)
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    for x in e.flip(0):
        h = gru_cell(back, x[None], h[None])[0]
        backward.insert(0, h)
    annotations = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
    s = torch.tanh(decoder.bridge.maps[0](backward[0]))
    score, logits = decoder.attend.score, []
    for y in decoder.embedding.table.weight[target]:
        scores = torch.stack(
            [
                score.out.weight[0] @ torch.tanh(score.query.weight @ s + score.query.bias + score.key.weight @ h)
                for h in annotations
            ]
        )
        weights = scores.exp() / scores.exp().sum()
        context = sum(a * h for a, h in zip(weights, annotations, strict=True))
        s = gru_cell(decoder.cells[0], torch.cat([y, context])[None], s[None])[0]
        t = decoder.readout.map(torch.cat([s, y, context]))
        t = torch.stack([t[2 * j : 2 * j + 2].max() for j in range(WIDTH)]) if maxout else t.tanh()
        logits.append(decoder.out(t))
    return torch.stack(logits)


@pytest.mark.parametrize("score", ["dot", "general"])
@pytest.mark.parametrize("feeding", [True, False], ids=["feeding", "no feeding"])
def test_luong_equals_a_naive_loop(score, feeding):
    model = translator("luong", score=score, input_feeding=feeding, layers=2)
    logits, _ = model(TARGET, model.remember(SOURCE, VALID))
    for row in range(3):
        assert_same(logits[row], naive_luong(model, one_row(row), TARGET[row], feeding))


def lstm_stack(cells, x, states):
    """One step of the layers, one above the other."""
    after = []
    for cell, state in zip(cells, states, strict=True):
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        h, c = torch.lstm_cell(x[None], [t[None] for t in state], *weights)
        x = h[0]
        after.append((h[0], c[0]))
    return x, after


def naive_luong(model: Translator, source, target, feeding: bool):
    encoder, decoder = model.encoder, model.decoder
    zero = torch.zeros(HIDDEN, dtype=torch.float64)
    states, features = [(zero, zero)] * 2, []
    for x in encoder.embedding.table.weight[source]:
        h, states = lstm_stack(encoder.cells, x, states)
        features.append(h)
    attended, logits, score = zero, [], decoder.attend.score
    for y in decoder.embedding.table.weight[target]:
        h, states = lstm_stack(decoder.cells, torch.cat([y, attended]) if feeding else y, states)
        query = score.query.weight @ h if hasattr(score, "query") else h
        scores = torch.stack([query @ f for f in features])
        weights = scores.exp() / scores.exp().sum()
        context = sum(a * f for a, f in zip(weights, features, strict=True))
        attended = torch.tanh(decoder.combine.weight @ torch.cat([context, h]))
        logits.append(decoder.out(attended))
    return torch.stack(logits)


def test_cho_equals_a_naive_loop():
    model = translator("cho", maxout=True)
    encoder, decoder = model.encoder, model.decoder
    logits, _ = model(TARGET, model.remember(SOURCE, VALID))
    for row in range(3):
        h = torch.zeros(HIDDEN, dtype=torch.float64)
        for x in encoder.embedding.table.weight[one_row(row)]:
            h = gru_cell(encoder.cells[0], x[None], h[None])[0]
        c = torch.tanh(decoder.pooling.project(h))
        s = torch.tanh(decoder.bridge.maps[0](c))
        for t, y in enumerate(decoder.embedding.table.weight[TARGET[row]]):
            s = gru_cell(decoder.cells[0], torch.cat([y, c])[None], s[None])[0]
            u = decoder.readout.map(torch.cat([s, y, c]))
            assert_same(logits[row, t], decoder.out(u.reshape(WIDTH, 2).max(1).values))


def test_sutskever_equals_torch_modules():
    """Two LSTM layers, the source backwards: torch's encoder's state is torch's decoder's first."""
    model = translator("sutskever", layers=2, reversed_source=True)
    reading, saying = (half.cells.to_torch() for half in (model.encoder, model.decoder))
    logits, _ = model(TARGET, model.remember(SOURCE, VALID))
    for row in range(3):
        backwards = model.encoder.embedding.table(one_row(row).flip(0))[None]
        _, state = reading(backwards)
        hidden, _ = saying(model.decoder.embedding.table(TARGET[row])[None], state)
        assert_same(logits[row], model.decoder.out(hidden)[0])
