"""The emulator as a machine that runs plans: g++ compiles the kernels' own sources, with the tests' hardware.cuh."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import torch

from recollect.kernels.driver import sources
from recollect.kernels.plans import Chip, Plan

HERE = Path(__file__).parent / "emulator"
COMPILER = shutil.which("g++")
ALONE = ("-fvisibility=hidden", "-fno-gnu-unique")  # several plans live in one process


class Emulator:
    """A chip of few multiprocessors, so that small shapes need several groups, blocks and launches."""

    def __init__(self, folder: Path, chip: Chip, seed: int = 0) -> None:
        self.folder, self.chip, self.seed = folder, chip, seed
        self.told = torch.zeros(1, dtype=torch.int32)
        self.launched: list[Plan] = []
        self.silent = False  # block 1 sends nothing

    def fits(self, plan: Plan) -> bool:
        return plan.grid <= self.chip.multiprocessors or not plan.through_l2

    def launch(self, plan: Plan, arguments: ctypes.Structure) -> None:
        self.launched.append(plan)
        library = build(self.folder, plan)
        self.seed += 1
        sizes = (plan.grid, plan.cluster, plan.threads, plan.shared_bytes, self.seed)
        status = library.launch(*sizes, int(self.silent), ctypes.byref(arguments))
        assert status == 0, {1: "the grid stands still", 2: "something was sent after the end"}[status]


def build(folder: Path, plan: Plan) -> ctypes.CDLL:
    name = plan.direction.capitalize()
    macros = plan.macros | {
        "RECOLLECT_EMULATED": 1,
        "KERNEL_FILE": f'"{plan.direction}.cu"',
        "KERNEL_ENTRY": f"recurrent_{plan.direction}",
        "KERNEL_ARGUMENTS": name,
    }
    flags = [f"-D{key}={value}" for key, value in macros.items()]
    key = hashlib.sha256(" ".join([*flags, *sources().values()]).encode()).hexdigest()[:24]
    library = folder / f"{key}.so"
    if not library.exists():
        for file, text in sources().items():
            (folder / file).write_text(text, encoding="utf-8")
        command = [
            COMPILER or "g++",
            "-std=c++17",
            "-O1",
            "-fPIC",
            "-shared",
            "-w",
            *ALONE,
            f"-I{HERE}",
            f"-I{folder}",
            *flags,
        ]
        subprocess.run([*command, str(HERE / "launch.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
