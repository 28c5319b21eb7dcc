"""The run-time compiler, where torch's wheels include it: no GPU is needed to compile for one."""

from __future__ import annotations

import re

import pytest

from recollect.accel.cuda import nvrtc
from recollect.accel.cuda.choice import ChoiceRule
from recollect.accel.cuda.driver import sources
from recollect.accel.cuda.head_step import HeadSizes
from recollect.accel.cuda.launcher import Kernel
from recollect.accel.cuda.recurrent.plan import CELLS, Chip, Chore, offer
from recollect.accel.cuda.single_step import BlockSizes


def is_there():
    try:
        nvrtc.version()
    except nvrtc.NoCudaCompiler:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not is_there(), reason="no libnvrtc")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "recollect" / "cubins"


@needs_nvrtc
@pytest.mark.parametrize("hidden", [256, 512, 1024])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_plans_compile_without_spilling(direction, hidden):
    check_plan(next(offer(direction, "lstm", False, 64, hidden, Chip())))


@needs_nvrtc
@pytest.mark.parametrize(
    ("cell", "hidden"), [("lstm", 256), ("lstm", 512), ("lstm", 640), ("gru", 512), ("rnn_tanh", 650)]
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_plans_in_tf32_compile_without_spilling(direction, cell, hidden):
    check_plan(next(offer(direction, cell, False, 64, hidden, Chip(), tf32=True)))


@needs_nvrtc
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_weights_in_shared_memory_leave_registers_nearly_enough(direction):
    plan = next(offer(direction, "lstm", False, 64, 1024, Chip(), tf32=True))
    assert plan.laid > 0
    _, log = compile_plan(plan)
    stores, loads = map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log).groups())
    assert stores <= 48
    assert loads <= 40
    assert "serialized" not in log


def compile_plan(plan):
    macros = [f"-D{name}={value}" for name, value in plan.macros.items()]
    options = ["-arch=sm_90a", *nvrtc.OPTIONS, "--ptxas-options=-v", *macros]
    return nvrtc.compile_source(sources(), f"{plan.direction}.cu", options)


def check_plan(plan):
    code, log = compile_plan(plan)
    assert code[1:4] == b"ELF"
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert "serialized" not in log  # wgmma is not serialised


@needs_nvrtc
@pytest.mark.parametrize(("half", "tf32"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_chores_compile_without_spilling(direction, cell, half, tf32):
    plan = next(offer(direction, cell, half, 64, 256, Chip(), tf32=tf32))
    for chore in Chore.all_of(plan).values():
        macros = [f"-D{name}={value}" for name, value in chore.macros.items()]
        options = ["-arch=sm_90a", *nvrtc.OPTIONS, "--ptxas-options=-v", *macros]
        code, log = nvrtc.compile_source(sources(), f"{chore.source}.cu", options)
        assert code[1:4] == b"ELF"
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log


@needs_nvrtc
def test_what_is_compiled_is_kept_and_what_is_broken_is_not_taken(cache):
    text = {"a.cu": 'extern "C" __global__ void f(int* x) { *x = WHAT; }'}
    code = nvrtc.build(text, "a.cu", {"WHAT": 1}, "sm_90a")
    (folder,) = cache.iterdir()
    before = (folder / nvrtc.CUBIN).stat().st_mtime_ns
    assert nvrtc.build(text, "a.cu", {"WHAT": 1}, "sm_90a") == code
    assert (folder / nvrtc.CUBIN).stat().st_mtime_ns == before
    assert nvrtc.build(text, "a.cu", {"WHAT": 2}, "sm_90a") != code
    (folder / nvrtc.CUBIN).write_bytes(bytes(len(code)))
    assert nvrtc.build(text, "a.cu", {"WHAT": 1}, "sm_90a") == code


@needs_nvrtc
def test_a_broken_source_says_why():
    with pytest.raises(nvrtc.NoCudaCompiler, match="undefined"):
        nvrtc.build({"a.cu": "__global__ void f() { g(); }"}, "a.cu", {}, "sm_90a")


def test_no_library_says_so(monkeypatch):
    monkeypatch.setattr(nvrtc, "_candidates", lambda: ["libnothing.so.0"])
    nvrtc.load.cache_clear()
    with pytest.raises(nvrtc.NoCudaCompiler, match="libnvrtc not found"):
        nvrtc.load()
    nvrtc.load.cache_clear()


STEPS = {
    "block_step": BlockSizes(1, 1, 768, 3072, 12, 12, 64, 1, 0, 0, "0.125f", "1e-05f", 8, 132).kernel,
    "block_step in half": BlockSizes(2, 1, 768, 3072, 12, 12, 64, 1, 0, 0, "0.125f", "1e-05f", 8, 132).kernel,
    "head_step": HeadSizes(1, 1, 768, 50257, 1, 0, "1e-05f", 8, 132).kernel,
    "recurrent_step": Kernel(
        "recurrent_step",
        tuple({"SCALAR": 1, "ROWS": 1, "WIDTH": 1024, "HIDDEN": 1024, "CELL": 3, "WARPS": 8}.items()),
        *(128, 256, 8192),
    ),
    "choose": ChoiceRule(greedy=False, top_k=40, temperature=0.9).kernel(1),
}


@needs_nvrtc
@pytest.mark.parametrize("name", STEPS)
def test_kernels_for_single_steps_compile_without_spilling(name):
    macros = [f"-D{key}={value}" for key, value in STEPS[name].constants]
    options = ["-arch=sm_90", *nvrtc.OPTIONS, "--ptxas-options=-v", *macros]
    code, log = nvrtc.compile_source(sources(), f"{STEPS[name].name}.cu", options)
    assert code[1:4] == b"ELF"
    assert "0 bytes spill stores, 0 bytes spill loads" in log
