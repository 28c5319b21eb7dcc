"""Starting the kernels for single steps: who can, on which kind of device, and why not where nobody can."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from recollect.accel.cuda import driver, nvrtc


@dataclass(frozen=True)
class Kernel:
    """A source of cuda/ with its constants, and how it is started. `at_once`: its blocks wait for each other."""

    name: str
    constants: tuple[tuple[str, Any], ...]
    blocks: int
    threads: int
    shared_bytes: int
    at_once: bool = False


class Launcher(Protocol):
    """Starts kernels on one kind of device."""

    def blocks(self, device: torch.device) -> int:
        """Return how many blocks can be there at the same time, one to a multiprocessor."""
        ...

    def launch(self, kernel: Kernel, device: torch.device, arguments: ctypes.Structure) -> None:
        """Start a kernel, in the order of the current stream."""
        ...


class CudaLauncher:
    """Starts kernels on NVIDIA's GPUs, compiled for them by NVRTC."""

    def blocks(self, device: torch.device) -> int:
        """One to a multiprocessor."""
        return torch.cuda.get_device_properties(device).multi_processor_count

    def launch(self, kernel: Kernel, device: torch.device, arguments: ctypes.Structure) -> None:
        """On the current stream; the driver refuses what could not run together."""
        driver.launch(*_loaded(kernel, device), arguments, device)


@lru_cache(maxsize=256)
def _loaded(kernel: Kernel, device: torch.device) -> tuple[ctypes.c_void_p, driver.LaunchShape]:
    shape = driver.LaunchShape(kernel.blocks, kernel.threads, kernel.shared_bytes, cooperative=kernel.at_once)
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        return driver.load(kernel.name, kernel.name, dict(kernel.constants), f"sm_{major}{minor}", shape), shape


LAUNCHERS: dict[str, Launcher] = {}  # by kind of device
REASONS: dict[str, str] = {}  # why a kind of device has none


def launcher_for(t: Tensor) -> Launcher | None:
    """Return what starts kernels where a tensor is; None: nothing does."""
    kind = t.device.type
    if kind == "cuda" and kind not in LAUNCHERS and kind not in REASONS:
        _find_cuda()
    return LAUNCHERS.get(kind)


def _find_cuda() -> None:
    try:
        nvrtc.load()
        if torch.cuda.get_device_capability() < (7, 0):
            raise nvrtc.NoCudaCompiler("the GPU is older than the kernels' instructions (compute capability 7.0)")
        LAUNCHERS["cuda"] = CudaLauncher()
    except (OSError, RuntimeError) as error:
        REASONS["cuda"] = str(error)


def switch_off(kind: str, why: str) -> None:
    """Start no more kernels on a kind of device."""
    LAUNCHERS.pop(kind, None)
    REASONS[kind] = why


def address(t: Tensor | None) -> int | None:
    """Return where a tensor begins, as an argument."""
    return None if t is None else t.data_ptr()
