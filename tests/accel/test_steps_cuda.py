"""The single-step kernels on a GPU: against float64, many launches in a row, and in a CUDA graph."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from recollect.accel.cuda import launcher as starting, single_step
from recollect.core.capture import as_graph
from recollect.core.record import readable
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import gpt2_small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
HOME = torch.device("cuda")
NEAR = {torch.float32: 2e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
CONFIGS = {
    "gpt2": gpt2_small(),
    "rotary": LanguageConfig("transformer", 301, width=384, layers=6, heads=6),
    "narrow": LanguageConfig("transformer", 70, width=40, layers=3, heads=5, hidden=72),
    "deep": LanguageConfig("transformer", 128, width=64, layers=33, heads=2),
    "lstm": LanguageConfig("lstm", 1000, width=256, layers=2),
}


@pytest.fixture(autouse=True)
def all_have_come():
    yield
    torch.cuda.synchronize()
    single_step.check_meetings(HOME)
    assert "cuda" not in starting.REASONS, starting.REASONS


def build(name, dtype):
    torch.manual_seed(0)
    model = LanguageModel(CONFIGS[name]).eval().to(HOME, dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return model


def begun(model, rows, steps, room):
    """Return ids, and a memory of some steps, with free slots for more."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(model.vocab_size, (rows, steps + room), generator=draw).to(HOME)
    _, memory = model(ids[:, :steps])
    return ids, memory


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_steps_are_those_of_the_readable_form(name, dtype, rows):
    model = build(name, dtype)
    exact = deepcopy(model).double()
    ids, memory = begun(model, rows, 150, 12)
    own, memory = memory.to(torch.float64).reserve(12, in_place=True), memory.reserve(12, in_place=True)
    for t in range(150, 162):
        valid = None if t % 3 else torch.arange(rows, device=HOME)[:, None] != 1
        with readable():
            want, own = exact(ids[:, t : t + 1], own, valid=valid)
        found, memory = model(ids[:, t : t + 1], memory, valid=valid)
        assert (found.double() - want).abs().max() <= NEAR[dtype] * want.abs().max()


@torch.no_grad()
def test_replays_do_not_take_each_others_words():
    model = build("gpt2", torch.float32)
    ids, memory = begun(model, 1, 40, 300)
    memory, id_now = memory.reserve(300, in_place=True), ids[:, 40:41].clone()
    leaves = [layer.length for layer in memory.layers if hasattr(layer, "length")]

    def turn():
        logits, after = model(id_now, memory)
        torch._foreach_copy_(leaves, [layer.length for layer in after.layers if hasattr(layer, "length")])
        return logits

    again = as_graph(turn)
    for length in leaves:
        length.fill_(40)  # the warm-up is undone
    found = []
    for t in range(40, 340):
        id_now.copy_(ids[:, t : t + 1])
        found.append(again()[0, 0].clone())
    with readable():
        want = model(ids)[0][0, 40:]
    torch.testing.assert_close(torch.stack(found), want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))


@torch.no_grad()
def test_what_is_said_is_what_reading_all_again_says():
    model = build("gpt2", torch.float32)
    prompt = list(range(32))
    for _ in range(3):
        ids = generate(model, [prompt], Settings(tokens=100, greedy=True))[0].ids
        with readable():
            logits = model(torch.tensor([prompt + ids], device=HOME))[0][0, 31:-1]
        best = logits.topk(2).values
        clear = (best[:, 0] - best[:, 1]) > 1e-3
        assert (logits.argmax(-1)[clear] == torch.tensor(ids, device=HOME)[clear]).all()
