"""The wheel, installed into a folder of its own, has all that runs: sources, templates, every verb."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
WHERE = "import recollect; print(recollect.__file__)"
IN_C = """
import torch, recollect as rc
from recollect.core.dispatch import find, why_not
layer, x = rc.GRU(8, 64), torch.randn(8, 64, 8)
assert find("layer", "cpu") is not None, why_not("cpu")
with torch.no_grad():
    read, _ = find("layer", "cpu")(layer, x, layer.initial_memory(8), None)
torch.testing.assert_close(read, layer.read(x, layer.initial_memory(8), None)[0])
model = rc.LanguageModel("gru", 16, width=32, layers=1).eval()
assert find("decode_refusal", "cpu")(model) == ""
fast = rc.generate(model, [[1, 2]], rc.Settings(tokens=40, greedy=True))[0].ids
from recollect.core.dispatch import without_accel
with without_accel():
    assert rc.generate(model, [[1, 2]], rc.Settings(tokens=40, greedy=True))[0].ids == fast
assert not why_not("cpu"), why_not("cpu")
from recollect.accel.cuda.driver import sources
print(*sorted(sources()))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return a folder that the wheel of this tree is installed in; what git ignores is no part of the tree."""
    base = tmp_path_factory.mktemp("wheel")
    tree = base / "tree"
    keep = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", tree / "src", ignore=keep)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", str(base), str(tree)], check=True)
    (wheel,) = base.glob("recollect-*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(base / "site"), str(wheel)], check=True)
    shutil.rmtree(tree)
    return base / "site"


@pytest.fixture
def run(installed, tmp_path):
    """Run a Python program in an empty folder, with the wheel and not the checkout on the path."""

    def run(*words: str) -> str:
        own = {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_the_wheel_that_runs(installed, run):
    assert run("-c", WHERE).strip() == str(installed / "recollect" / "__init__.py")


def test_every_file_of_the_package_is_in_it(installed):
    package = ROOT / "src" / "recollect"
    ours = {p.relative_to(package) for p in package.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    theirs = {p.relative_to(installed / "recollect") for p in (installed / "recollect").rglob("*") if p.is_file()}
    assert ours <= theirs
    sources = {".cu", ".cuh", ".c"} if (package / "accel").is_dir() else set()
    assert {".j2", ".css", ".pyi"} | sources <= {p.suffix for p in theirs}


def test_it_trains_and_generates(run):
    run("-m", "recollect", "train", "recall:count=400", "-m", "gru", "--budget", "2steps", "--out", "run")
    said = json.loads(run("-m", "recollect", "generate", "run", "a", "--tokens", "5", "--json"))
    assert len(said["text"]) == 5
    assert "carried" in run("-m", "recollect", "evaluate", "run")


def test_the_demo_writes_its_page(run, tmp_path):
    run("-m", "recollect", "demo", "--seconds", "0.2", "--out", "demo")
    assert "<html" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / "src/recollect/accel").is_dir(), reason="there is no device code in this tree")
def test_c_forms_are_compiled_and_cuda_sources_found(run):
    if shutil.which("cc") is None and "CI" not in os.environ:
        pytest.skip("no C compiler")
    assert set(run("-c", IN_C).split()) == {p.name for p in (ROOT / "src/recollect/accel/cuda/sources").iterdir()}
