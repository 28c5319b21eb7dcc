"""The one path from a kernel's source to a launch, with a driver that records its calls."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from recollect.accel.cuda import driver, launcher, nvrtc
from recollect.accel.cuda.recurrent.plan import Chip, Chore, offer

DEVICE = torch.device("cuda", 0)


class Recorder:
    """A driver that does nothing and returns success."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __getattr__(self, name: str):
        def call(*given):
            kept = driver._Config.from_buffer_copy(given[0]._obj) if name == "cuLaunchKernelEx" else None
            self.calls.append((name, kept))
            if name.startswith("cuOccupancy"):
                given[0]._obj.value = 16
            return 0

        return call

    def launches(self) -> list[driver._Config]:
        return [config for name, config in self.calls if name == "cuLaunchKernelEx"]


@pytest.fixture
def recorder(monkeypatch):
    found, built = Recorder(), []
    monkeypatch.setattr(driver, "_driver", lambda: found)
    monkeypatch.setattr(driver, "_thread", driver._Thread())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(nvrtc, "build", lambda sources, main, macros, arch: built.append((main, arch)) or b"")
    found.built = built
    launcher._loaded.cache_clear()
    yield found
    launcher._loaded.cache_clear()


class Nothing(ctypes.Structure):
    _fields_ = (("word", ctypes.c_int),)


def test_a_single_step_is_compiled_once_and_launched_as_asked(recorder):
    kernel = launcher.Kernel("block_step", (("ROWS", 1),), 132, 256, 4096, at_once=True)
    for _ in range(2):
        launcher.CudaLauncher().launch(kernel, DEVICE, Nothing())
    assert recorder.built == [("block_step.cu", "sm_90")]
    first, second = recorder.launches()
    assert (first.grid[0], first.block[0], first.shared_bytes, first.stream) == (132, 256, 4096, 7)
    assert first.attribute_count == second.attribute_count == 1
    assert first.attributes[0].id == driver.COOPERATIVE


def test_a_plan_and_its_chores_take_the_same_path(recorder, monkeypatch):
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch, "zeros", lambda *size, dtype, pin_memory: torch.empty(*size, dtype=dtype).zero_())
    machine = driver.Cuda(DEVICE)
    plan = next(offer("forward", "lstm", False, 16, 512, Chip()))
    assert machine.fits(plan)
    machine.launch(plan, Nothing())
    machine.do(Chore.all_of(plan)["prepare"], 1000, Nothing())
    assert recorder.built == [("prepare.cu", "sm_90a"), ("forward.cu", "sm_90a")]
    _, launched, chore = recorder.launches()
    assert (launched.grid[0], launched.block[0]) == (plan.grid, plan.threads)
    assert launched.attributes[0].id == driver.CLUSTER_DIMENSION
    assert (chore.grid[0], chore.block[0], chore.attribute_count) == (4, 256, 0)


def test_a_refusal_is_an_error(recorder, monkeypatch):
    kernel = launcher.Kernel("head_step", (), 1, 32, 0)
    monkeypatch.setattr(driver, "_start", lambda *given: 1)
    with pytest.raises(driver.DriverError, match="returned 1"):
        launcher.CudaLauncher().launch(kernel, DEVICE, Nothing())
