"""Structures of other people's models: generation with device code equals that without."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.core.dispatch import find, without_accel

pytestmark = pytest.mark.usefixtures("compiler")

STRUCTURES = {
    "GPT-2": {"max_length": 96, "activation": "gelu_tanh", "head_bias": False, "tied": True},
    "Llama": {"kv_heads": 2, "norm_kind": "rms", "activation": "swiglu", "bias": False, "rotary_base": 500.0},
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_generation_is_the_same_with_and_without_device_code(name):
    torch.manual_seed(0)
    model = rc.LanguageModel("transformer", 23, width=32, heads=4, layers=2, **STRUCTURES[name]).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    assert find("decode_refusal", "cpu")(model) == ""
    settings = rc.Settings(tokens=60, greedy=True)
    fast = rc.generate(model, [[1, 2, 3]], settings)[0].ids
    with without_accel():
        assert rc.generate(model, [[1, 2, 3]], settings)[0].ids == fast
    assert len(set(fast)) > 3
