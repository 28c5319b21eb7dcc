"""Kernels on a CPU: the same sources, compiled by g++ against emulated.h, started by the same host code."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from recollect.kernels import single_step
from recollect.kernels.launchers import Launcher

SOURCES = Path(single_step.__file__).parent / "cuda"
HERE = Path(__file__).parent
STRUCTURES = {"block_step": "const Layer", "recurrent_step": "const Weights", "choose": "nothing"}
SIGNATURES = {
    "block_step": "const Layer* layer, const scalar* x, scalar* y, const unsigned char* valid, Meeting* meeting, "
    "float* scratch, int splits",
    "choose": "const float* logits, const float* filtered, int vocabulary, const double* uniform, const long long* at, "
    "const long long* stop, int stops, unsigned char* active, unsigned char* live, long long* ids, long long* said, "
    "double* log_p",
    "recurrent_step": "const Weights* weights, const scalar* x, const scalar* h, const scalar* c, "
    "const unsigned char* valid, scalar* h_after, scalar* c_after",
}


def has_compiler() -> bool:
    return shutil.which("g++") is not None


class Emulator:
    """Launches kernels on the CPU, with few blocks of few warps."""

    def __init__(self, folder: Path, blocks: int = 3) -> None:
        self.folder, self.count, self.launched = folder, blocks, []

    def launcher(self) -> Launcher:
        return Launcher(self.launch, lambda device: self.count)

    def launch(
        self, name: str, constants: dict[str, Any], blocks: int, threads: int, arguments: list[Any], at_once: bool
    ) -> None:
        self.launched.append(name)
        given = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in arguments]
        self._library(name, constants).start(blocks, threads, *given)

    def _library(self, name: str, constants: dict[str, Any]) -> ctypes.CDLL:
        defines = [f"-D{key}={value}" for key, value in constants.items()]
        path = self.folder / f"{name}-{hashlib.sha256(' '.join(defines).encode()).hexdigest()[:16]}.so"
        if not path.exists():
            source = path.with_suffix(".cpp")
            source.write_text(self._wrapped(name), encoding="utf-8")
            flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-pthread", f"-I{SOURCES}", f"-I{HERE}"]
            subprocess.run(["g++", *flags, *defines, str(source), "-o", str(path)], check=True)
        return ctypes.CDLL(str(path))

    def _wrapped(self, name: str) -> str:
        parameters = SIGNATURES[name]
        names = [part.split()[-1] for part in parameters.split(",")]
        by_value = [f"*{n}" if f"{t}* {n}" in parameters else n for n in names for t in (STRUCTURES[name],)]
        call = f"{name}({', '.join(by_value)})"
        return (
            f'#define EMULATED 1\n#include "{name}.cu"\n'
            f'extern "C" void start(int blocks, int threads, {parameters}) '
            f"{{ emulated::launch(blocks, threads, [=] {{ {call}; }}); }}\n"
        )
