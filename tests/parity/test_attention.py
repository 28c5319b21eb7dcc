"""Attention against torch's own, weights copied over: outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recollect import BasicSelfAttention, Block, CrossAttention, FeedForward, SelfAttention, record
from recollect.layers.positions import alibi_slopes

TOL = {"rtol": 1e-10, "atol": 1e-10}
WIDTH, HEADS = 12, 3


def copy_attention(ours: SelfAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        ours.qkv.weight.copy_(theirs.in_proj_weight)
        ours.out.weight.copy_(theirs.out_proj.weight)
        if theirs.in_proj_bias is not None:
            ours.qkv.bias.copy_(theirs.in_proj_bias)
            ours.out.bias.copy_(theirs.out_proj.bias)


def ragged(batch: int, steps: int) -> torch.Tensor:
    lengths = torch.tensor([steps, 1, steps // 2, steps - 1])[:batch]
    return torch.arange(steps) < lengths[:, None]


def grads(y, valid, leaves):
    y = y if valid is None else y.masked_fill(~valid[..., None], 0)
    weights = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)
    return torch.autograd.grad((y * weights).sum(), leaves)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_ragged", [True, False])
def test_self_attention_equals_multihead_attention(causal, bias, is_ragged):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True, dtype=torch.float64)
    ours = SelfAttention(WIDTH, HEADS, causal=causal, bias=bias, dtype=torch.float64)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn_like(p) * 0.3)  # torch begins with zero biases, which would hide a missing one
    copy_attention(ours, theirs)
    x = torch.randn(4, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    valid = ragged(4, 7) if is_ragged else None
    mask = torch.triu(torch.ones(7, 7, dtype=torch.bool), 1) if causal else None
    padding = None if valid is None else ~valid
    y_theirs = theirs(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]
    y, _ = ours(x, valid=valid)
    y_theirs = y_theirs if valid is None else y_theirs.masked_fill(~valid[..., None], 0)
    torch.testing.assert_close(y, y_theirs, **TOL)

    ours_leaves = [x, ours.qkv.weight, ours.out.weight] + ([ours.qkv.bias, ours.out.bias] if bias else [])
    their_leaves = [x, theirs.in_proj_weight, theirs.out_proj.weight]
    their_leaves += [theirs.in_proj_bias, theirs.out_proj.bias] if bias else []
    for a, b in zip(grads(y, valid, ours_leaves), grads(y_theirs, valid, their_leaves), strict=True):
        torch.testing.assert_close(a, b, **TOL)


@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (4, 1)])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("window", [None, 3])
def test_self_attention_equals_scaled_dot_product_attention(heads, kv_heads, scaled, window):
    torch.manual_seed(0)
    layer = SelfAttention(WIDTH, heads, kv_heads=kv_heads, scaled=scaled, window=window, dtype=torch.float64)
    x = torch.randn(2, 6, WIDTH, dtype=torch.float64, requires_grad=True)
    size = WIDTH // heads
    q, k, v = layer.qkv(x).split([WIDTH, kv_heads * size, kv_heads * size], dim=2)
    q, k, v = (t.unflatten(2, (-1, size)).transpose(1, 2) for t in (q, k, v))
    step = torch.arange(6)
    back = step[:, None] - step
    mask = (back >= 0) & (back < (window or 6))
    scale = size**-0.5 if scaled else 1.0
    context = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
    expected = layer.out(context.transpose(1, 2).flatten(2))
    y, _ = layer(x)
    torch.testing.assert_close(y, expected, **TOL)
    leaves = [x, *layer.parameters()]
    for a, b in zip(grads(y, None, leaves), grads(expected, None, leaves), strict=True):
        torch.testing.assert_close(a, b, **TOL)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("is_ragged", [True, False])
def test_block_equals_transformer_encoder_layer(norm_first, activation, is_ragged):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, activation=activation, norm_first=norm_first, **options)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    ours = Block(
        SelfAttention(WIDTH, HEADS, causal=False),
        FeedForward(WIDTH, 20, activation=activation),
        norm="pre" if norm_first else "post",
    ).double()
    copy_attention(ours.mixer, theirs.self_attn)
    pairs = [
        (ours.feed_forward.up, theirs.linear1),
        (ours.feed_forward.down, theirs.linear2),
        (ours.mixer_norm.norm, theirs.norm1),
        (ours.feed_forward_norm.norm, theirs.norm2),
    ]
    for mine, their in pairs:
        mine.load_state_dict(their.state_dict())
    x = torch.randn(4, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    valid = ragged(4, 7) if is_ragged else None
    y, _ = ours(x, valid=valid)
    y_theirs = theirs(x, src_key_padding_mask=None if valid is None else ~valid)
    y_theirs = y_theirs if valid is None else y_theirs.masked_fill(~valid[..., None], 0)
    torch.testing.assert_close(y, y_theirs, **TOL)
    ours_leaves = [x, ours.mixer.qkv.weight] + [p for mine, _ in pairs for p in mine.parameters()]
    their_leaves = [x, theirs.self_attn.in_proj_weight] + [p for _, their in pairs for p in their.parameters()]
    for a, b in zip(grads(y, valid, ours_leaves), grads(y_theirs, valid, their_leaves), strict=True):
        torch.testing.assert_close(a, b, **TOL)


@pytest.mark.parametrize("source_width", [None, 5])
def test_cross_attention_equals_multihead_attention(source_width):
    torch.manual_seed(0)
    width = source_width or WIDTH
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, kdim=width, vdim=width, dtype=torch.float64)
    ours = CrossAttention(WIDTH, HEADS, source_width=source_width, dtype=torch.float64)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
        parts = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        q, k, v = theirs.in_proj_weight.chunk(3) if source_width is None else parts
        ours.query.weight.copy_(q)
        ours.key_value.weight.copy_(torch.cat([k, v]))
        ours.query.bias.copy_(theirs.in_proj_bias[:WIDTH])
        ours.key_value.bias.copy_(theirs.in_proj_bias[WIDTH:])
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(4, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    source = torch.randn(4, 7, width, dtype=torch.float64, requires_grad=True)
    valid = ragged(4, 7)
    y, _ = ours(x, ours.remember(source, valid))
    expected = theirs(x, source, source, key_padding_mask=~valid, need_weights=False)[0]
    torch.testing.assert_close(y, expected, **TOL)
    for a, b in zip(grads(y, None, [x, source]), grads(expected, None, [x, source]), strict=True):
        torch.testing.assert_close(a, b, **TOL)


def test_an_empty_source_gives_nothing_but_no_crash():
    layer = CrossAttention(WIDTH, HEADS, dtype=torch.float64)
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    for steps in (0, 4):
        source = torch.full((2, steps, WIDTH), torch.nan, dtype=torch.float64)
        y, _ = layer(x, layer.remember(source, torch.zeros(2, steps, dtype=torch.bool)))
        torch.testing.assert_close(y, layer.out.bias.expand_as(y))


def test_alibi_adds_a_slope_times_the_distance():
    layer = SelfAttention(8, 2, positions="alibi", dtype=torch.float64)
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    plain = SelfAttention(8, 2, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    with record(layer) as biased:
        layer(x)
    with record(plain) as unbiased:
        plain(x)
    distance = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    expected = -torch.tensor(alibi_slopes(2), dtype=torch.float64)[:, None, None] * distance
    torch.testing.assert_close(biased["scores"] - unbiased["scores"], expected[None].expand(1, -1, -1, -1))


def test_alibi_slopes_are_the_papers():
    assert alibi_slopes(8) == [2**-n for n in range(1, 9)]
    assert len(alibi_slopes(12)) == 12
    assert alibi_slopes(12)[:8] == alibi_slopes(8)
    assert alibi_slopes(12)[8:] == alibi_slopes(16)[0:8:2]


def test_basic_self_attention_is_the_three_lines_of_its_definition():
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    weights = (x @ x.transpose(1, 2)).softmax(-1)
    torch.testing.assert_close(BasicSelfAttention(4, causal=False)(x)[0], weights @ x, **TOL)
    assert not list(BasicSelfAttention(4).parameters())


def test_weights_recorded_sum_to_one_and_do_not_look_ahead():
    layer = SelfAttention(8, 2, window=3, dtype=torch.float64)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    with record(layer) as seen:
        y, _ = layer(x)
    torch.testing.assert_close(y, layer(x)[0], **TOL)
    weights = seen["weights"]
    assert weights.shape == (2, 2, 6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    back = torch.arange(6)[:, None] - torch.arange(6)
    assert (weights[:, :, (back < 0) | (back >= 3)] == 0).all()
    assert {"scores", "weights", "context"} <= set(seen)
