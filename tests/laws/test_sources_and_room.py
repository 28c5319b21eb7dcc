"""The laws where `check_layer` must be given something: a source to look at, or reserved room to write into."""

from __future__ import annotations

import pytest
import torch

from recollect import Block, CrossAttention, Layers, SelfAttention, Stack, check_layer
from recollect.layers.attention.self_attention import BasicSelfAttention

DTYPES = [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lengths", [[5, 2, 3], [5, 0, 3], [0, 0, 0]], ids=str)
def test_cross_attention_keeps_the_laws(dtype, lengths):
    torch.manual_seed(0)
    layer = CrossAttention(8, 2, source_width=3, dtype=dtype)
    valid = torch.arange(5) < torch.tensor(lengths)[:, None]
    source = torch.randn(3, 5, 3, dtype=dtype).masked_fill(~valid[..., None], torch.nan)
    check_layer(layer, memory=layer.remember(source, valid))


def test_a_stack_with_a_source_keeps_the_laws():
    torch.manual_seed(0)
    look_back, look_across = Block(SelfAttention(8, 2)), Block(CrossAttention(8, 2))
    stack = Stack(look_back, look_across).double()
    source = look_across.mixer.remember(torch.randn(3, 4, 8, dtype=torch.float64))
    memory = Layers(layers=(look_back.initial_memory(3), source))
    check_layer(stack, memory=memory)


def test_reordering_leaves_the_source_where_it_is():
    layer = CrossAttention(4, 2)
    source = layer.remember(torch.randn(2, 3, 4))
    assert source.reorder([1, 0]) is source
    assert not source.select([1, 0]).equals(source)


ROOMY = {
    "attention": lambda: SelfAttention(8, 2),
    "rotary": lambda: SelfAttention(8, 2, positions="rotary"),
    "alibi": lambda: SelfAttention(8, 2, positions="alibi"),
    "window": lambda: SelfAttention(8, 2, window=4),
    "basic": lambda: BasicSelfAttention(8),
    "stack": lambda: Stack(Block(SelfAttention(8, 2)), Block(SelfAttention(8, 2, window=3))),
}


@pytest.mark.parametrize("name", ROOMY)
def test_reserved_room_changes_no_result(name):
    """All laws but bytes, which are those of the room: they no longer grow."""
    torch.manual_seed(0)
    layer = ROOMY[name]().double()
    memory = layer.initial_memory(3, like=torch.zeros((), dtype=torch.float64)).reserve(120)
    check_layer(
        layer, memory=memory, laws=["purity", "causality", "split", "rows", "padding", "gradients", "reference", "keep"]
    )
    x = torch.randn(3, 20, 8, dtype=torch.float64)
    y, after = layer(x, memory)
    torch.testing.assert_close(y, layer(x)[0], rtol=1e-10, atol=1e-10)
    assert after.nbytes == memory.nbytes


def test_only_an_owner_who_asks_has_steps_written_in_place():
    layer = SelfAttention(8, 2)
    with torch.no_grad():
        kept, owned = (layer.initial_memory(1).reserve(8, in_place=own) for own in (False, True))
        x = torch.randn(1, 3, 8)
        for memory in (kept, owned):
            y, after = layer(x, memory)
            torch.testing.assert_close(y, layer(x)[0])
            y, after = layer(x, after)
            torch.testing.assert_close(y, layer(torch.cat([x, x], 1))[0][:, 3:])
        assert (kept.keys == 0).all()
        assert not (owned.keys == 0).all()
