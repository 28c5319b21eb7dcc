"""Single-step kernels, on an emulated GPU: their results are the layers'."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from emulated import COMPILER
from emulation import StepEmulator
from forms import offer_cuda_forms
from torch import Tensor

from recollect.accel.cuda import choice as choosing, launcher as starting, single_step
from recollect.accel.cuda.choice import ChoiceRule, TurnRecord, choose
from recollect.accel.cuda.decode_loop import Loop
from recollect.core.compose import Stack
from recollect.core.memory import Memory
from recollect.core.record import readable
from recollect.core.reservation import slots_for
from recollect.generation.filters import apply_filters, draw
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import FeedForward, LayerNorm, Linear, RMSNorm
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.models.language import LanguageConfig, LanguageModel
from tiers import slow_after

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture
def emulator(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StepEmulator]:
    if COMPILER is None:
        assert os.environ.get("CI") != "true", "no g++"
        pytest.skip("no g++")
    found = StepEmulator(folder)
    offer_cuda_forms(monkeypatch)
    monkeypatch.setitem(starting.LAUNCHERS, "cpu", found)
    monkeypatch.setattr(single_step, "WARPS", 2)
    monkeypatch.setattr(torch, "empty_like", lambda t, **options: torch.full_like(t, poison(t), **options))
    yield found
    single_step.check_meetings(torch.device("cpu"))
    forget_places()


def forget_places() -> None:
    single_step._places.clear()
    single_step._failures.clear()


def poison(t: Tensor) -> Any:
    return torch.nan if t.is_floating_point() else -1


def block(width: int, hidden: int, heads: int, kv_heads: int, **options: Any) -> Block[Any]:
    torch.manual_seed(0)
    positions, activation = options.pop("positions", None), options.pop("activation", "gelu")
    bias = options.get("bias", True)
    mixer = SelfAttention(width, heads, kv_heads=kv_heads, positions=positions, bias=bias)
    found = Block(mixer, FeedForward(width, hidden, activation=activation, bias=bias), **options).eval()
    with torch.no_grad():
        for p in found.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return found


BLOCKS: dict[str, tuple[Any, torch.dtype, list[int]]] = {
    "rows of two ages, shared heads, turned": (
        lambda: block(64, 160, 4, 2, positions="rotary"),
        torch.float32,
        [70, 5],
    ),
    "no biases, nothing read before": (lambda: block(32, 264, 2, 2, bias=False, activation="relu"), torch.float32, [0]),
    "root mean square, bfloat16": (
        lambda: block(64, 128, 2, 2, kind="rms", activation="gelu_tanh"),
        torch.bfloat16,
        [200, 1, 64],
    ),
    "half, wider than a warp reads at once": (lambda: block(320, 264, 5, 5), torch.float16, [3]),
}


def with_past(layer: Any, lengths: list[int], dtype: torch.dtype) -> tuple[Tensor, Memory]:
    """Return a step to read, and a memory of rows of some lengths, with free slots."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(len(lengths), max(lengths), layer.width_out, generator=draw).to(dtype)
    valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    _, memory = layer(x, valid=valid)
    return torch.randn(len(lengths), 1, layer.width_out, generator=draw).to(dtype), memory


@pytest.mark.parametrize("name", slow_after(4, BLOCKS))
@torch.no_grad()
def test_a_block_reads_a_step(name, emulator):
    make, dtype, lengths = BLOCKS[name]
    layer = make().to(dtype)
    x, memory = with_past(layer, lengths, dtype)
    exact = make().double()
    exact.load_state_dict(layer.state_dict())
    want, after_want = exact(x.double(), memory.to(torch.float64).reserve(20))
    found, after = layer(x, memory.reserve(20, in_place=True))
    assert emulator.launched == ["block_step"]
    scale = float(want.abs().max())
    torch.testing.assert_close(found.double(), want, rtol=0, atol=TOLERANCE[dtype] * scale)
    assert after.to(torch.float64).settled().equals(after_want.settled(), tol=TOLERANCE[dtype] * scale)


@torch.no_grad()
def test_rows_that_have_ended_keep_their_length(emulator):
    layer = BLOCKS["rows of two ages, shared heads, turned"][0]()
    x, memory = with_past(layer, [4, 9], torch.float32)
    valid = torch.tensor([[True], [False]])
    found, after = layer(x, memory.reserve(8, in_place=True), valid=valid)
    with readable():
        want, after_want = layer(x, memory.reserve(8, in_place=True), valid=valid)
    assert emulator.launched == ["block_step"]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert after.settled().equals(after_want.settled(), tol=1e-5)
    assert after.length.tolist() == [5, 9]


@torch.no_grad()
def test_angles_to_another_base_are_not_the_kernels(emulator):
    layer = Block(SelfAttention(64, 4, positions="rotary", rotary_base=500.0)).eval()
    x, memory = with_past(layer, [4], torch.float32)
    layer(x, memory.reserve(8, in_place=True))
    assert emulator.launched == []


# ---- several blocks in one launch ----------------------------------------------------------------

STACKS: dict[str, tuple[Any, int, torch.dtype, list[int]]] = {  # a block, chips of so many, ages of the rows
    "a row": (lambda: block(64, 160, 4, 2, positions="rotary"), 7, torch.float32, [33]),
    "two rows, one list in parts": (lambda: block(32, 264, 2, 1, kind="rms"), 24, torch.float32, [140, 9]),
    "three rows, more lists than blocks": (lambda: block(48, 64, 3, 3, bias=False), 4, torch.float32, [5, 1, 70]),
    "four rows, little hidden": (lambda: block(64, 8, 2, 2), 40, torch.bfloat16, [1, 2, 66, 4]),
    "half, more parts than are looked at together": (lambda: block(64, 72, 4, 4), 40, torch.float16, [1200]),
    "bfloat16, parts longer than a turn": (lambda: block(32, 264, 2, 1, bias=False), 4, torch.bfloat16, [300, 40]),
    "more blocks than features": (lambda: block(16, 40, 1, 1), 60, torch.float32, [200]),
}


def stack_of(make: Any, depth: int, dtype: torch.dtype) -> Stack:
    layers = [make() for _ in range(depth)]
    with torch.no_grad():
        for i, layer in enumerate(layers):
            for p in layer.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
    return Stack(*layers).to(dtype)


@pytest.mark.parametrize("name", slow_after(1, STACKS))
@torch.no_grad()
def test_a_stack_of_blocks_reads_steps_in_one_launch_each(name, emulator):
    make, emulator.count, dtype, lengths = STACKS[name]
    layer = stack_of(make, 3, dtype)
    x, memory = with_past(layer, lengths, dtype)
    memory, exact = memory.reserve(8, in_place=True), stack_of(make, 3, dtype).double()
    want_after = memory.to(torch.float64)
    for valid in (None, None, torch.arange(len(x))[:, None] != 1):  # tags are counted from launch to launch
        want, want_after = exact(x.double(), want_after, valid=valid)
        found, memory = layer(x, memory, valid=valid)
        scale = float(want.abs().max())
        torch.testing.assert_close(found.double(), want, rtol=0, atol=2 * TOLERANCE[dtype] * scale)
        x = found / found.abs().max().clamp(min=1)
    assert emulator.launched == ["block_step"] * 3
    assert memory.to(torch.float64).settled().equals(want_after.settled(), tol=4 * TOLERANCE[dtype] * scale)


@torch.no_grad()
def test_blocks_that_differ_or_are_watched_are_read_apart(emulator):
    layers = [block(32, 64, 2, 2), block(32, 64, 2, 2), block(32, 96, 2, 2), block(32, 96, 2, 2), block(32, 96, 2, 2)]
    seen = []
    layers[3].register_forward_hook(lambda *_: seen.append(3))
    layer = Stack(*layers)
    x, memory = with_past(layer, [4], torch.float32)
    with readable():
        want, _ = layer(x, memory.reserve(2, in_place=True))
    seen.clear()
    found, _ = layer(x, memory.reserve(2, in_place=True))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert seen == [3]
    assert emulator.launched == ["block_step"] * 3  # two, one, the watched one on the plain path, one


STALE = {
    "tags of the launch before": ("(u32)*given.launches * (MOST_LAYERS * EXCHANGES) + 1", "1"),
    "tags of the layer before": ("first + at * EXCHANGES", "first"),
}


@pytest.mark.parametrize("name", STALE)
@torch.no_grad()
def test_stale_words_are_seen(name, emulator, monkeypatch):
    monkeypatch.setattr(single_step, "PLACES", 1)
    emulator.fault = STALE[name]
    layer = stack_of(lambda: block(32, 64, 2, 2), 2, torch.float32)
    x, memory = with_past(layer, [4], torch.float32)
    with readable():
        want = layer(-x, memory.reserve(2, in_place=True))[0]
    layer(x, memory.reserve(2, in_place=True))
    found = layer(-x, memory.reserve(2, in_place=True))[0]
    assert not torch.allclose(found, want, rtol=1e-3, atol=1e-3)


HEADS: dict[str, tuple[Any, int, torch.dtype]] = {  # the layers, rows, and the dtype
    "a norm before": (lambda: (LayerNorm(40), Linear(40, 301)), 1, torch.float32),
    "root mean square, two rows": (lambda: (RMSNorm(264), Linear(264, 77, bias=False)), 2, torch.bfloat16),
    "three rows, no biases": (lambda: (LayerNorm(8, bias=False), Linear(8, 2)), 3, torch.float16),
    "no norm, four rows": (lambda: (Linear(24, 130),), 4, torch.float32),
}


@pytest.mark.parametrize("name", slow_after(2, HEADS))
@torch.no_grad()
def test_a_map_to_the_vocabulary_reads_a_step(name, emulator):
    make, rows, dtype = HEADS[name]
    torch.manual_seed(0)
    layer = Stack(*make()).to(dtype)
    for p in layer.parameters():
        p.add_(torch.randn(p.shape) * 0.1)
    x = (3 + torch.randn(rows, 1, layer.width)).to(dtype)
    exact = Stack(*make()).double()
    exact.load_state_dict(layer.state_dict())
    valid = torch.arange(rows)[:, None] != 1
    want, _ = exact(x.double(), valid=valid)
    found, _ = layer(x, valid=valid)
    assert emulator.launched == ["head_step"]
    torch.testing.assert_close(found.double(), want, rtol=0, atol=TOLERANCE[dtype] * float(want.abs().max()))
    layer[0].register_forward_hook(lambda *_: None)
    layer(x)
    assert emulator.launched == ["head_step"] * 2  # the map alone, and what is watched as always


RECURRENCES: dict[str, tuple[Any, torch.dtype]] = {  # each is a compilation
    "rnn": (lambda: RNN(24, 40), torch.float32),
    "relu without biases": (lambda: RNN(24, 40, nonlinearity="relu", bias=False), torch.bfloat16),
    "gru": (lambda: GRU(40, 24), torch.float16),
    "lstm": (lambda: LSTM(264, 296), torch.float32),
    "lstm without biases": (lambda: LSTM(24, 16, bias=False), torch.bfloat16),
}


@pytest.mark.parametrize("name", RECURRENCES)
@torch.no_grad()
def test_a_recurrence_reads_a_step(name, emulator):
    make, dtype = RECURRENCES[name]
    torch.manual_seed(0)
    layer = make().to(dtype)
    x = torch.randn(2, 4, layer.width).to(dtype)
    _, memory = layer(x[:, :3])
    exact = make().double()
    exact.load_state_dict(layer.state_dict())
    emulator.launched.clear()
    for valid in (None, torch.tensor([[True], [False]])):
        want, after_want = exact(x[:, 3:].double(), memory.to(torch.float64), valid=valid)
        found, after = layer(x[:, 3:], memory, valid=valid)
        torch.testing.assert_close(found.double(), want, rtol=0, atol=TOLERANCE[dtype])
        assert after.to(torch.float64).equals(after_want, tol=TOLERANCE[dtype])
    assert emulator.launched == ["recurrent_step"] * 2


def test_gradients_and_other_shapes_go_the_plain_way(emulator):
    layer = LSTM(24, 16)
    layer(torch.randn(1, 1, 24))
    with torch.no_grad():
        layer(torch.randn(1, 2, 24))
        layer(torch.randn(5, 1, 24))
        LSTM(20, 12)(torch.randn(1, 1, 20))
        with readable():
            layer(torch.randn(1, 1, 24))
    assert emulator.launched == []


@pytest.mark.parametrize("change", ["window", "alibi", "post", "swiglu", "no free slots", "hook"])
@torch.no_grad()
def test_blocks_that_the_kernel_does_not_know_go_the_plain_way(change, emulator):
    options: dict[str, Any] = {"window": {"window": 4}, "alibi": {"positions": "alibi"}}.get(change, {})
    mixer = SelfAttention(16, 2, **options)
    forward = FeedForward(16, 32, activation="swiglu" if change == "swiglu" else "gelu")
    layer = Block(mixer, forward, norm="post" if change == "post" else "pre")
    if change == "hook":
        layer.feed_forward.up.register_forward_hook(lambda *_: None)
    _, memory = layer(torch.randn(1, 3, 16))
    layer(torch.randn(1, 1, 16), memory if change == "no free slots" else memory.reserve(4, in_place=True))
    assert emulator.launched == []


# ---- choosing ------------------------------------------------------------------------------------

WAYS = {
    "greedy": Settings(greedy=True),
    "drawn": Settings(temperature=0.7),
    "among three": Settings(top_k=3),
    "among more than there are": Settings(top_k=1000, temperature=2),
}


def said(rows: int, turns: int) -> TurnRecord:
    at, ids, ids_said = (torch.zeros(*shape, dtype=torch.long) for shape in ((1,), (rows,), (turns, rows)))
    active, live = torch.ones(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.bool)
    return TurnRecord(at, active, live, ids, ids_said, torch.zeros(turns, rows, dtype=torch.float64))


@pytest.mark.parametrize("vocabulary", [1, 7, 301])
@pytest.mark.parametrize("name", WAYS)
def test_a_choice_is_the_filters(name, vocabulary, emulator, monkeypatch):
    monkeypatch.setattr(choosing, "THREADS", 64)
    settings, rows = WAYS[name], 40
    way = ChoiceRule(settings.greedy, settings.top_k, settings.temperature)
    logits = 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
    logits[1] = logits[1].round()  # with ties
    logits[2] = 0
    uniform = torch.rand(2, rows, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    uniform[1, 3], uniform[1, 4] = 0, 1 - 2**-53
    into = said(rows, 2)
    into.at.fill_(1)
    into.active[5] = False
    stop = torch.tensor([0, 3])
    assert choose(way, logits, logits, uniform, stop, into)
    want = logits.argmax(-1) if settings.greedy else draw(apply_filters(logits, settings), uniform[1].tolist())
    assert into.ids.tolist() == want.tolist()
    live = torch.arange(rows) != 5
    assert into.live.tolist() == live.tolist()
    assert into.active.tolist() == (live & ~torch.isin(want, stop)).tolist()
    assert into.said[1].tolist() == want.masked_fill(~live, -1).tolist()
    log_p = logits.double().log_softmax(-1).gather(-1, want[:, None])[:, 0].masked_fill(~live, 0)
    torch.testing.assert_close(into.log_p[1], log_p, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", slow_after(1, ["transformer", "lstm"]))
@torch.no_grad()
def test_a_loop_of_kernels_says_what_the_model_says(family, emulator, monkeypatch):
    monkeypatch.setattr(choosing, "THREADS", 64)
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig(family, 11, width=32, layers=2, heads=2, hidden=64)).eval()
    for p in model.parameters():
        p.mul_(4 if p.dim() > 1 else 1)
    settings, prompt = Settings(tokens=12, temperature=0.9, top_k=8), [[3, 1, 4, 1, 5]]
    with readable():
        want = generate(model, prompt, settings)[0]
        logits, memory = model(torch.tensor(prompt))
    memory = memory.reserve(slots_for(memory, 12), in_place=True)
    loop = Loop(model, settings, memory, logits[:, -1], has_valid=False)
    ids, log_p = loop.run(np.random.default_rng([settings.seed, 0]).random((12, 1)), [True])
    assert [row[0] for row in ids] == want.ids
    assert [row[0] for row in log_p] == pytest.approx(want.logprobs, abs=1e-4)
    layers = ["block_step"] if family == "transformer" else ["recurrent_step"] * 2  # all blocks at once
    assert emulator.launched == ["choose", *layers, "head_step"] * 12


# ---- faults that must be detected ----------------------------------------------------------------

FAULTS = {
    "words are taken as they are": ("is_whole & has_tag(words[i], tag)", "true"),
    "no sum over the threads of a row": ("sums[t][b] += from_lane_xor(sums[t][b], step);", ";"),
    "a row's cuts are not added": ("cut < CUTS;", "cut < 1;"),
    "threads of a warp are not combined": ("running.join_over_warp();", ""),
    "the step itself is not looked at": ("if (item.is_last) itself.see(q, running);", ""),
}


@pytest.mark.parametrize("name", slow_after(2, FAULTS))
@torch.no_grad()
def test_a_fault_is_seen(name, emulator, monkeypatch):
    emulator.fault = FAULTS[name]
    emulator.count = 40  # more warps than rows of a weight
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: empty(*args, **kwargs).fill_(torch.nan))
    layer = block(32, 320, 2, 2)
    x, memory = with_past(layer, [40], torch.float32)
    with readable():
        want, _ = layer(x, memory.reserve(2, in_place=True))
    found, _ = layer(x, memory.reserve(2, in_place=True))
    assert emulator.launched == ["block_step"]
    assert not torch.allclose(found, want, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_block_that_does_not_come_is_reported(emulator):
    emulator.silent = True
    layer = block(32, 64, 2, 2)
    x, memory = with_past(layer, [4], torch.float32)
    layer(x, memory.reserve(2, in_place=True))
    with pytest.raises(RuntimeError, match="did not meet"):
        single_step.check_meetings(x.device)
    assert starting.launcher_for(x) is None
    assert "did not meet" in starting.REASONS.pop("cpu")
    forget_places()
