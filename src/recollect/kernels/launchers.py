"""Starting kernels: who can, on which kind of device, and why not where nobody can."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Constants: TypeAlias = dict[str, Any]
Launch: TypeAlias = Callable[[str, Constants, int, int, list[Any], bool], None]


@dataclass(frozen=True)
class Launcher:
    """Starts kernels of cuda/: `launch(name, constants, blocks, threads, arguments, all_at_once)`."""

    launch: Launch
    blocks: Callable[[torch.device], int]  # how many can be there at the same time, one to a multiprocessor


LAUNCHERS: dict[str, Launcher] = {}  # by kind of device
REASONS: dict[str, str] = {}  # why a kind of device has none


def launcher_for(t: Tensor) -> Launcher | None:
    """Give what starts kernels where a tensor is; None: nothing does."""
    return LAUNCHERS.get(t.device.type)


def switch_off(kind: str, why: str) -> None:
    """Start no more kernels on a kind of device."""
    LAUNCHERS.pop(kind, None)
    REASONS[kind] = why


def address(t: Tensor | None) -> ctypes.c_void_p:
    """Give where a tensor begins, as an argument."""
    return ctypes.c_void_p(None if t is None else t.data_ptr())
