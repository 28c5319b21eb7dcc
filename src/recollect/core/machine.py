"""The machine that a model is trained on: its devices, its memory, its name, and records of measurements on it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recollect.core.launch import launched
from recollect.version import __version__

PROCESS = Path("/proc/self")
CGROUP = Path("/sys/fs/cgroup")  # a container's limits


def choose_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is the GPU where there is one, of several processes one for each."""
    launch = launched()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and launch.size > 1:
        name = f"cuda:{launch.local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # not a device to train on
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device: got {name!r}, expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        again = "--device auto" if launch.size == 1 else f"--nproc-per-node {max(count, 1)}, or --device cpu"
        raise ValueError(f"--device: got {name!r}, but torch finds {count} GPUs here; try: {again}")
    return device


def describe(device: torch.device) -> str:
    """Return the names of the processor and of the GPU where one is used, and the versions."""
    where = f"{cpu_model()}, {os.cpu_count()} cores"
    if device.type == "cuda":
        where = f"{torch.cuda.get_device_name(device)}; {where}"
    return f"{where}; recollect {__version__}, torch {torch.__version__}, Python {platform.python_version()}"


def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


# ---- records ----------------------------------------------------------------------------------------


def record(
    name: str, rows: list[dict[str, Any]], command: str, commit: str = "none", **extra: object
) -> dict[str, Any]:
    """Return rows of measurements with what is needed to judge and repeat them."""
    return {
        "name": name,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
        "machine": facts(),
        "versions": versions(),
        "commit": commit,
        "rows": rows,
        **extra,
    }


def facts() -> dict[str, str | float | None]:
    """Return the processor, its cores, the memory, and the GPU where there is one."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found: dict[str, str | float | None] = {"cpu": cpu_model(), "cores": os.cpu_count()}
    found["memory_gib"] = round(memory, 1)
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Return the versions of what measurements depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "recollect": __version__,
        "os": platform.system(),
    }


# ---- memory ------------------------------------------------------------------------------------------


def forget_peak(device: torch.device) -> None:
    """Reset the peak, where the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif PROCESS.exists():
        with suppress(OSError):  # without the permission the peak is that since the process began
            (PROCESS / "clear_refs").write_text("5")  # resets VmHWM; see proc(5)


def peak_memory(device: torch.device) -> int:
    """Return the most bytes held since the peak was reset: on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if PROCESS.exists():
        return _kibibytes(PROCESS / "status", "VmHWM")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def resident_memory() -> int:
    """Return the bytes that this process holds in main memory now."""
    if PROCESS.exists():
        return _kibibytes(PROCESS / "status", "VmRSS")
    return peak_memory(torch.device("cpu"))


def available_memory(device: torch.device) -> int:
    """Return the bytes that this process may hold: what is free, and what it holds already."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    if not PROCESS.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _kibibytes(Path("/proc/meminfo"), "MemAvailable") + _kibibytes(PROCESS / "status", "VmRSS")
    return min(free, container_limit(CGROUP))


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process may hold beside those that it holds already."""
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_memory()
    return max(0, available_memory(device) - held)


def container_limit(folder: Path) -> int:
    """Return the bytes that a container may hold (cgroup v2); sys.maxsize where there is no limit."""
    try:
        return int((folder / "memory.max").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return sys.maxsize


def _kibibytes(path: Path, name: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def release_memory() -> None:
    """Hand freed memory over to the system, where the C library can: glibc keeps most of what many sizes have freed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
