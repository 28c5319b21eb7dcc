"""Generations by compiled steps, and the plain ones that they must equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from generate_models import FAMILIES
from recollect.accel.cpu.decode import compilation as compiling, repeated_step as repeating
from recollect.core.dispatch import without_accel
from recollect.generation.sampling import Generation, generate
from recollect.generation.settings import Settings, compiled

REPEATABLE = [name for name in FAMILIES if name != "markov"]
GREEDY = Settings(tokens=40, greedy=True)


def shapes_of(model: Any) -> list[tuple[int, bool]]:
    """Return the rows of each compiled step, and whether it takes a mask."""
    return [(len(step.ids), step.has_valid) for step in repeating._RECORDED.get(model, [])]


def in_c(model: Any, *args: Any, **kwargs: Any) -> list[Generation]:
    with compiled():
        found = generate(model, *args, **kwargs)
    assert shapes_of(model), (repeating._REFUSED.get(model), compiling.REASONS)
    return found


def plainly(*args: Any, **kwargs: Any) -> list[Generation]:
    """Read every step with the model itself, and choose by torch."""
    with without_accel():
        return generate(*args, **kwargs)


def assert_same(found: list[Generation], want: list[Generation], near: float = 1e-9) -> None:
    for a, b in zip(found, want, strict=True):
        assert a.ids == b.ids
        assert a.reason == b.reason
        assert a.logprobs == pytest.approx(b.logprobs, abs=near)
        assert a.memory.equals(b.memory, near)
        assert torch.allclose(a.logits, b.logits, near, near)
