"""The wall: without accel/, and with RECOLLECT_ACCEL=off, everything else works, only slower."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "layers": ["tests/core/test_dispatch.py", "tests/layers/test_torch_habits.py", "tests/parity/test_recurrent.py"],
    "laws": ["tests/laws/test_laws.py", "-k", "test_the_nine_laws and float32 and (LSTM or GRU or attention)"],
    "generation": ["tests/generation/test_generate_filters.py", "tests/generation/test_generate_text.py"],
}


def run(folder: Path, command: list[str], **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the tree, and leave accel out."""
    folder = tmp_path_factory.mktemp("without")
    leave_out = shutil.ignore_patterns("__pycache__", "accel")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


SHOW = """
import torch, recollect as rc
from recollect.core import dispatch
rc.LSTM.stack(4, 8, 2, bidirectional=True)(torch.zeros(2, 3, 4))
print(*dispatch.why_not("cpu"), dispatch._forms)
"""


def test_layers_read_without_accel_and_the_reason_is_known(without):
    assert run(without, ["-c", SHOW]) == "recollect.accel.cpu is not installed {}\n"


def test_switched_off_nothing_of_accel_is_loaded():
    assert run(ROOT, ["-c", SHOW], RECOLLECT_ACCEL="off") == "switched off: RECOLLECT_ACCEL=off {}\n"


@pytest.mark.slow
@pytest.mark.parametrize("part", TESTS)
def test_without_accel(without, part):
    assert "[100%]" in run(without, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS[part]])
