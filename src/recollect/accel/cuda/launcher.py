"""Launchers of single-step kernels, by type of device, and why a type of device has none."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from recollect.accel.cuda import driver, nvrtc


@dataclass(frozen=True)
class Kernel:
    """A source of cuda/ with its constants and launch shape. `at_once`: its blocks wait for each other."""

    name: str
    constants: tuple[tuple[str, int | str], ...]
    blocks: int
    threads: int
    shared_bytes: int
    at_once: bool = False


class Launcher(Protocol):
    """Launches kernels on one type of device."""

    def blocks(self, device: torch.device) -> int:
        """Return how many blocks can be resident at the same time, one per multiprocessor."""
        ...

    def launch(self, kernel: Kernel, device: torch.device, arguments: ctypes.Structure) -> None:
        """Launch a kernel on the current stream."""
        ...


class CudaLauncher:
    """Launches kernels on NVIDIA GPUs, compiled for them by NVRTC."""

    def blocks(self, device: torch.device) -> int:
        """Return one per multiprocessor."""
        return torch.cuda.get_device_properties(device).multi_processor_count

    def launch(self, kernel: Kernel, device: torch.device, arguments: ctypes.Structure) -> None:
        """Launch on the current stream; the driver refuses a grid whose blocks cannot all be resident."""
        driver.launch(*_loaded(kernel, device), arguments, device)


@lru_cache(maxsize=256)
def _loaded(kernel: Kernel, device: torch.device) -> tuple[ctypes.c_void_p, driver.LaunchShape]:
    shape = driver.LaunchShape(kernel.blocks, kernel.threads, kernel.shared_bytes, cooperative=kernel.at_once)
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        return driver.load(kernel.name, kernel.name, dict(kernel.constants), f"sm_{major}{minor}", shape), shape


LAUNCHERS: dict[str, Launcher] = {}  # by type of device
REASONS: dict[str, str] = {}  # why a type of device has none


def launcher_for(t: Tensor) -> Launcher | None:
    """Return the launcher for a tensor's device; None: there is none."""
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
    """Disable kernels on a type of device."""
    LAUNCHERS.pop(kind, None)
    REASONS[kind] = why


def address(t: Tensor | None) -> int | None:
    """Return a tensor's address, as an argument."""
    return None if t is None else t.data_ptr()
