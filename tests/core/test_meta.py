"""Modules on the meta device: the shapes of the real ones, nothing drawn, and no import of torch._dynamo."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from recollect.core.meta import on_meta

BUILD = """
import sys
from dataclasses import asdict
from recollect.core.meta import on_meta
from recollect.runs.config import RunConfig
from recollect.tasks.register import guess_task

for data, family in (("recall:count=50", "transformer"), ("dates:count=50", "bahdanau"), ("seasons", "transformer"),
                     ("kindness:count=50", "bilstm"), ("shapes:count=50", "show-attend-tell")):
    task = RunConfig.make(data, family, task=guess_task(data)).make_task()
    made = task.config(family, "tiny", task.open(data), {})
    with on_meta():
        model = task.build(asdict(made))
    assert all(p.is_meta for p in model.parameters()), family
    assert "torch._dynamo" not in sys.modules, family
"""


def test_no_model_takes_the_compiler_along():
    done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_shapes_are_kept_and_nothing_is_drawn():
    before = torch.get_rng_state()
    with on_meta():
        made = nn.Embedding(5, 3)
        real = torch.full((4,), 7.0, device="cpu")
    assert made.weight.is_meta
    assert made.weight.shape == (5, 3)
    assert torch.equal(torch.get_rng_state(), before)
    with on_meta():
        nn.init.normal_(real)
        real[:2].normal_()
    assert (real != 7.0).all()
    assert not torch.equal(torch.get_rng_state(), before)
