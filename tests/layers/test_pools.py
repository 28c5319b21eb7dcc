"""The pools, the filters and the spelled words: laws, definitions, and the shortcut to the last step."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.layers.pools import POOLS

LENGTHS = (4, 1, 3, 0)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    valid = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(4, 4, 6, dtype=torch.float64).masked_fill(~valid[..., None], 0), valid


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_obeys_the_laws(name):
    rc.check_layer(POOLS[name](5).double())


@pytest.mark.parametrize("name", POOLS)
def test_final_is_the_last_step(name, batch):
    x, valid = batch
    pool = POOLS[name](6).double()
    begun = pool(x[:, :2], valid=valid[:, :2])[1]
    for start, memory in ((0, pool.initial_memory(4, like=x)), (2, begun)):
        y, after = pool(x[:, start:], memory, valid=valid[:, start:])
        found, same = pool.final(x[:, start:], memory, valid[:, start:])
        assert same.equals(after, 1e-12)
        for row, length in enumerate(LENGTHS):
            if length > start:
                torch.testing.assert_close(found[row], y[row, length - start - 1])
    assert not pool.final(x, pool.initial_memory(4, like=x), valid)[0][3].any()  # an empty row


def test_pools_are_what_they_are_called(batch):
    x, valid = batch
    row = x[2, :3]
    for name, expected in (("last", row[-1]), ("mean", row.mean(0)), ("max", row.amax(0))):
        pool = POOLS[name](6)
        torch.testing.assert_close(pool.final(x, pool.initial_memory(4, like=x), valid)[0][2], expected)
    pool = POOLS["attention"](6).double()
    scores = (pool.key(row).tanh() @ pool.query.weight.T).squeeze(1)
    torch.testing.assert_close(pool.final(x, pool.initial_memory(4, like=x), valid)[0][2], scores.softmax(0) @ row)


@pytest.mark.parametrize("sizes", [(3,), (1, 2, 5)])
def test_filters_obey_the_laws_and_equal_a_convolution(sizes):
    torch.manual_seed(0)
    layer = rc.Filters(4, 6, sizes).double()
    rc.check_layer(layer)
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    parts = []
    for size, linear in zip(sizes, layer.maps, strict=True):
        weight = linear.weight.view(-1, size, 4).transpose(1, 2)
        padded = torch.nn.functional.pad(x.transpose(1, 2), ((size - 1) // 2, size // 2))
        parts.append(torch.nn.functional.conv1d(padded, weight, linear.bias).relu())
    torch.testing.assert_close(layer(x)[0], torch.cat(parts, 1).transpose(1, 2))


def test_a_spelled_word_is_its_vector_and_its_letters():
    torch.manual_seed(0)
    layer = rc.SpelledEmbedding(9, 8, letters=5, width_spelled=3).double()
    words = torch.randint(9, (3, 6, 1))
    letters = torch.randint(1, 6, (3, 6, 4)).masked_fill(torch.arange(4) >= torch.randint(1, 5, (3, 6, 1)), 0)
    x = torch.cat([words, letters], -1)
    rc.check_layer(layer, inputs=x)
    y = layer(x)[0]
    torch.testing.assert_close(y[..., :5], layer.table(words[..., 0]))
    longer = torch.cat([x, torch.zeros(3, 6, 2, dtype=torch.long)], -1)
    torch.testing.assert_close(layer(longer)[0], y)  # letters after the end do not count
    with pytest.raises(rc.ContractError, match=r"ids \(B, T, 1 \+ letters\)"):
        layer(words[..., 0])
    with pytest.raises(rc.ContractError, match="width_spelled"):
        rc.SpelledEmbedding(9, 8, letters=5, width_spelled=8)
