"""The emulator as a machine that runs plans: g++ compiles the kernels' own sources, with the tests' hardware.cuh."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recollect.accel.cuda.driver import sources
from recollect.accel.cuda.recurrent.plan import Chip, Chore, KernelPlan

HERE = Path(__file__).parent / "emulator"
OUTCOMES = {1: "the grid stands still", 2: "something was sent after the end", 3: "a thread did what it may not"}
COMPILER = shutil.which("g++")
HEADERS = ("algorithm", "cmath", "cstdint", "cstring", "functional", "memory", "stdexcept", "vector")
ALONE = ("-fvisibility=hidden", "-fno-gnu-unique")  # several plans live in one process


class Emulator:
    """A chip of few multiprocessors, so that small shapes need several groups, blocks and launches."""

    def __init__(self, folder: Path, chip: Chip, seed: int = 0) -> None:
        self.folder, self.chip, self.seed = folder, chip, seed
        self.told = ctypes.c_int()
        self.launched: list[KernelPlan] = []
        self.silent = False  # block 1 sends nothing
        self.fault: tuple[str, str] | None = None  # a fragment of the source, and its replacement

    def fits(self, plan: KernelPlan, copies: int = 1) -> bool:
        return copies * plan.grid <= self.chip.multiprocessors

    def launch(self, plan: KernelPlan, arguments: ctypes.Structure) -> None:
        self.launched.append(plan)
        self._run(plan, plan.direction.capitalize(), plan.grid, arguments)

    def do(self, chore: Chore, count: int, arguments: ctypes.Structure) -> None:
        blocks = max(1, min(-(-count // chore.threads), self.chip.multiprocessors))
        self._run(chore, chore.source.capitalize(), blocks, arguments)

    def _run(self, kernel: KernelPlan | Chore, structure: str, blocks: int, arguments: ctypes.Structure) -> None:
        library = build(self.folder, kernel.source, kernel.entry, structure, kernel.macros, self.fault)
        self.seed += 1
        sizes = (blocks, kernel.cluster, kernel.threads, kernel.shared_bytes, self.seed)
        status = library.launch(*sizes, int(self.silent), ctypes.byref(arguments))
        assert status == 0, OUTCOMES[status]


def build(
    folder: Path, file: str, entry: str, arguments: str, macros: Mapping[str, Any], fault: tuple[str, str] | None
) -> ctypes.CDLL:
    """Compile a kernel for the CPU: its file, its name there, and that of its arguments."""
    texts = {name: text for name, text in plant(fault).items() if name == f"{file}.cu" or name.endswith(".cuh")}
    macros = dict(macros) | {
        "RECOLLECT_EMULATED": 1,
        "KERNEL_FILE": f'"{file}.cu"',
        "KERNEL_ENTRY": entry,
        "KERNEL_ARGUMENTS": arguments,
    }
    flags = [f"-D{key}={value}" for key, value in macros.items()]
    key = hashlib.sha256(" ".join([*flags, *texts.values()]).encode()).hexdigest()[:24]
    library = folder / f"{key}.so"
    with alone(folder / f"{key}.lock"):
        if not library.exists():
            own = folder / f"sources-{os.getpid()}"  # which may have a fault in them
            own.mkdir(exist_ok=True)
            for file, text in texts.items():
                (own / file).write_text(text, encoding="utf-8")
            where = f"-I{HERE}", f"-I{own}", "-include", precompile(folder)
            compile_with(*where, *flags, str(HERE / "launch.cpp"), "-o", str(library))
    return ctypes.CDLL(str(library))


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Let one process in at a time: tests run in several, and share what one has compiled."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def precompile(folder: Path) -> str:
    """Read the standard library's headers once for all plans: they are half of a compilation."""
    header = folder / "prelude.h"
    with alone(folder / "prelude.lock"):
        if not header.exists():
            header.write_text("".join(f"#include <{name}>\n" for name in HEADERS), encoding="utf-8")
            compile_with("-x", "c++-header", str(header), "-o", f"{header}.gch")
    return str(header)


def compile_with(*arguments: str) -> None:
    subprocess.run([COMPILER or "g++", "-std=c++17", "-Og", "-fPIC", "-shared", "-w", *ALONE, *arguments], check=True)


def plant(fault: tuple[str, str] | None) -> dict[str, str]:
    if fault is None:
        return sources()
    assert any(fault[0] in text for text in sources().values()), f"not in the source: {fault[0]}"
    return {file: text.replace(*fault) for file, text in sources().items()}
