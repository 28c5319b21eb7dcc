"""What every kind of run is held to when it is halted and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin, resume


def check_goes_on_bit_equal(recipe: RunConfig, folder: Path) -> None:
    """Train twice for 10 updates, take the last checkpoint from one, let it go on: the weights are the same bits."""
    whole, halted = Run(folder / "whole"), Run(folder / "halted")
    begin(recipe, whole, lambda row: None)
    begin(recipe, halted, lambda row: None)
    for path in halted.checkpoints.glob("step-00000010*"):
        path.rename(folder / "away")
    resume(halted, lambda row: None, pytest.fail)
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (whole, halted))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
