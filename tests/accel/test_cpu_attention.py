"""The kernel for one step of self-attention on a CPU, used at every size, against the plain form."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.accel.cpu import attention, team
from recollect.core.dispatch import without_accel
from recollect.layers.attention.self_attention import KeysValues, SelfAttention

SHAPES = {  # B, S, width, heads, kv_heads
    "one slot": (1, 1, 4, 1, 1),
    "shared keys": (5, 23, 48, 6, 2),
    "parts of vectors": (3, 70, 12, 2, 2),
    "several blocks of vectors": (2, 9, 200, 2, 1),
}


@pytest.fixture(autouse=True)
def at_every_size(compiler, monkeypatch):
    monkeypatch.setattr(attention, "FEWEST", 1)
    monkeypatch.setattr(attention, "REASONS", {})
    assert attention.library_for(torch.float64) is not None, attention.REASONS


@pytest.fixture
def threads():
    """Set the number of threads; restore it afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def calls(monkeypatch):
    """Return the numbers of rows that the kernel reads from now on."""
    found = []
    original = attention.attend

    def attend(library, q, *given):
        found.append(len(q))
        return original(library, q, *given)

    monkeypatch.setattr(attention, "attend", attend)
    return found


def case(rows, slots, width, heads, kv_heads, dtype=torch.float64, **options):
    """Return a layer, an input of one step, and a function that makes a memory of rows of all ages."""
    torch.manual_seed(0)
    layer = SelfAttention(width, heads, kv_heads=kv_heads, **options).to(dtype)
    draw = torch.Generator().manual_seed(1)
    length = torch.randint(slots, (rows,), generator=draw)
    length[0] = slots - 1
    shape = (rows, slots, kv_heads, width // heads)
    keys, values = (torch.randn(shape, generator=draw, dtype=dtype) for _ in range(2))
    blank = torch.arange(slots) >= length[:, None]
    for t in (keys, values):
        t[blank] = torch.nan  # what no step has written must not be read

    def memory(**hints):
        clean = [t.nan_to_num(0.0) if hints.get("clean") else t.clone() for t in (keys, values)]
        own = {"reserved": True, "in_place": True} | {k: v for k, v in hints.items() if k != "clean"}
        return KeysValues(keys=clean[0], values=clean[1], length=length.clone(), **own)

    return layer, torch.randn(rows, 1, width, generator=draw, dtype=dtype), memory


@torch.no_grad()
def both(layer, x, memory):
    """Return what the kernel and what torch's operations give."""
    ours = layer(x, memory())
    with without_accel():
        return ours, layer(x, memory(clean=True))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("positions", ["rotary", None])
def test_a_step_is_that_of_the_plain_form(shape, positions, calls):
    layer, x, memory = case(*shape, positions=positions)
    (y, after), (want, after_want) = both(layer, x, memory)
    assert calls == [len(x)]
    assert (y - want).abs().max() < 1e-12
    assert after.length.equal(after_want.length)
    assert after.settled().equals(after_want.settled(), 1e-12)


def test_in_float32_to_its_rounding(calls):
    layer, x, memory = case(5, 300, 64, 4, 4, dtype=torch.float32)
    (y, _), (want, _) = both(layer, x, memory)
    assert calls == [5]
    assert (y - want).abs().max() < 1e-5


def test_scores_of_any_size_are_no_overflow():
    layer, x, memory = case(4, 40, 16, 2, 2)
    with torch.no_grad():
        layer.qkv.weight *= 300.0
    (y, _), (want, _) = both(layer, x, memory)
    assert y.isfinite().all()
    assert (y - want).abs().max() <= 1e-12 * (1 + want.abs().max())


@pytest.mark.parametrize("own_threads", [True, False])
@torch.no_grad()
def test_the_number_of_threads_changes_no_bit(own_threads, threads, monkeypatch):
    layer, x, memory = case(7, 33, 24, 4, 2)
    alone, _ = layer(x, memory())
    threads(3)
    if not own_threads:
        monkeypatch.setattr(team, "torch_threads", lambda: None)
    assert torch.equal(layer(x, memory())[0], alone)


@torch.no_grad()
def test_a_memory_of_others_and_a_full_one_are_left_to_torch(calls):
    layer, x, memory = case(3, 20, 8, 2, 2)
    given = memory(clean=True, in_place=False)
    before = given.keys.clone()
    layer(x, given)
    assert torch.equal(given.keys, before)
    full = memory(clean=True)
    full.length[1] = 20
    with pytest.raises(IndexError):
        layer(x, full)  # torch's own: the kernel would write beyond the end
    layer(x.expand(-1, 2, -1), memory(clean=True).reserve(4, in_place=True))
    with torch.enable_grad():
        layer(x, memory(clean=True, in_place=False))
    assert not calls


def test_an_attention_of_ones_own_is_not_read_by_it(calls):
    class Other(SelfAttention):
        def keys_values(self, lists):
            return lists["keys"], lists["values"] + 1

    _, x, memory = case(3, 20, 8, 2, 2)
    with torch.no_grad():
        Other(8, 2).double()(x, memory(clean=True))
        SelfAttention(8, 2, positions="alibi").double()(x, memory(clean=True))
    assert not calls


def test_generation_uses_it_and_gives_the_same(calls):
    model = rc.LanguageModel(rc.LanguageConfig("transformer", 11, width=16, layers=2, heads=2)).double()
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8]]
    settings = rc.Settings(tokens=30, seed=3)
    found = [one.ids for one in rc.generate(model, prompts, settings)]
    assert len(calls) > 30
    with without_accel():
        assert [one.ids for one in rc.generate(model, prompts, settings)] == found


def test_without_a_compiler_torch_reads_and_the_reason_is_kept(monkeypatch, calls):
    monkeypatch.setenv("CC", "no-such-compiler")
    attention._compiled.cache_clear()
    layer, x, memory = case(3, 20, 8, 2, 2)
    with torch.no_grad():
        layer(x, memory(clean=True))
    assert not calls
    assert attention.REASONS == {"torch.float64": "no C compiler: no-such-compiler not found"}
    attention._compiled.cache_clear()
