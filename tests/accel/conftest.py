"""Fixtures of the kernels' tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from emulated import Emulator
from forms import offer_cuda_forms

from recollect.accel.cpu import compiler as c_compiler
from recollect.accel.cpu.decode import compilation as compiling
from recollect.accel.cuda.recurrent import chunks, persistent, plan as plans, precision

CPU = torch.device("cpu")


@pytest.fixture
def poisoned():
    """Fill what is allocated and not written with NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return the folder for what is compiled for the emulator: one for all processes that run tests."""
    own = tmp_path_factory.getbasetemp()
    found = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "emulated"
    found.mkdir(exist_ok=True)
    return found


@pytest.fixture
def emulate(folder, monkeypatch):
    """Emulate a chip of so many multiprocessors on the CPU device; it reads float32 where tf32 is requested."""

    def start(multiprocessors, through_l2=False, tf32=False):
        machine = Emulator(folder, plans.Chip(multiprocessors))
        offer_cuda_forms(monkeypatch)
        monkeypatch.setattr(persistent, "_machines", {CPU: machine})
        monkeypatch.setattr(persistent, "_plans", {})
        monkeypatch.setattr(persistent, "REASONS", {})
        monkeypatch.setattr(persistent, "FEWEST_STEPS", 1)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
        monkeypatch.setattr(precision, "FEW_INPUTS", 0)  # emulated layers are small
        monkeypatch.setattr(precision, "TF32_CELLS", plans.CELLS)
        monkeypatch.setattr(precision, "FEWEST_ROWS", 1)
        if through_l2:
            monkeypatch.setattr(plans, "WIDEST", 0)
        return machine

    return start


@pytest.fixture
def in_chunks(monkeypatch):
    """Cut time into chunks of so many steps, wherever it may be cut."""

    def cut(size, most=1000, growth=1.0):
        monkeypatch.setattr(chunks, "SHORTEST", size)
        monkeypatch.setattr(chunks, "MOST", most)
        monkeypatch.setattr(chunks, "MOST_BESIDE", most)
        monkeypatch.setattr(persistent, "FEWEST_STACKED", 2 * size)
        monkeypatch.setattr(persistent, "FEWEST_BESIDE", 1)
        monkeypatch.setattr(chunks, "WORTH", {"forward": 1, "backward": 1})
        monkeypatch.setattr(chunks, "MOST_GROWTH", growth)
        persistent.find_way.cache_clear()  # computed with other constants

    return cut


@pytest.fixture(scope="session")
def compiled_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def compiler(compiled_before: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Require a compiler, and keep what it builds out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled_before))
    try:
        c_compiler.find_compiler()
    except c_compiler.NoCompiler as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    compiling.REASONS.clear()
    return compiled_before
