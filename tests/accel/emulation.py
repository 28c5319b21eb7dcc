"""The emulator as the launcher of single-step kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from emulated import OUTCOMES, build

from recollect.accel.cuda.launcher import Kernel


class StepEmulator:
    """A chip of few multiprocessors that launches kernels on CPU tensors."""

    def __init__(self, folder: Path, blocks: int = 3) -> None:
        self.folder, self.count, self.seed = folder, blocks, 0
        self.launched: list[str] = []
        self.silent = False  # block 1 sends nothing
        self.fault: tuple[str, str] | None = None  # a fragment of the source, and its replacement

    def blocks(self, device: torch.device) -> int:
        return self.count

    def launch(self, kernel: Kernel, device: torch.device, arguments: ctypes.Structure) -> None:
        self.launched.append(kernel.name)
        self.seed += 1
        library = build(self.folder, kernel.name, kernel.name, "Arguments", dict(kernel.constants), self.fault)
        sizes = kernel.blocks, 1, kernel.threads, kernel.shared_bytes, self.seed
        status = library.launch(*sizes, int(self.silent), ctypes.byref(arguments))
        assert status == 0, OUTCOMES[status]
