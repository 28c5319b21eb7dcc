"""What `recollect doctor` does: say what this machine has, what of it is used, and where not, why not.

Each check is a small function that gives findings. Nothing here needs torch to be sound: that is one of the findings.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from recollect.core.cache import cache_folder
from recollect.core.dispatch import ask, why_not
from recollect.core.processor import processor

TORCH = ((2, 8), (2, 14))  # from the first, below the second, as the package's metadata say
TORCH_WANTED = ">=2.8,<2.14"
AGAIN = "recollect doctor"
FLAGS = {  # a feature: what /proc/cpuinfo calls it, and what goes without it
    "AVX-512": (("avx512f",), "products take shorter vectors"),
    "AMX": (("amx_tile",), "products in bfloat16 have no unit of their own"),
    "bf16": (("avx512_bf16", "amx_bf16", "bf16"), "bfloat16 on this processor is slower than float32"),
}
EXTRAS = {  # a library: what it is for, and the extra that brings it
    "matplotlib": ("pictures of the benchmarks", "plots"),
    "tensorboard": ("curves in TensorBoard", "tensorboard"),
    "transformers": ("a peer in recollect bench", "peers"),
}


@dataclass(frozen=True)
class Finding:
    """What was found of one thing; `next` is the command that mends it, where one does.

    "absent": it can be done without. "broken": it is needed.
    """

    name: str
    state: Literal["ok", "absent", "broken"]
    says: str
    next: str | None = None


def examine() -> Iterator[Finding]:
    """Give all findings, one after the other."""
    yield check_python()
    torch = check_torch()
    yield torch
    for check in PLAIN:
        yield from _unharmed(check)
    if torch.state == "ok":
        for check in WITH_TORCH:
            yield from _unharmed(check)


def _unharmed(check: Callable[[], list[Finding]]) -> list[Finding]:
    """Let no check keep the others from being made."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        return [Finding(name, "absent", f"cannot be told: {_in_words(error)}")]


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# ---- what everything stands on -----------------------------------------------------------------------


def check_python() -> Finding:
    """Name the interpreter."""
    return Finding("python", "ok", f"{platform.python_version()}, {sys.executable}")


def check_torch() -> Finding:
    """See that torch can be imported, and has a version that the package was tried with."""
    mend = f'pip install "torch{TORCH_WANTED}"'
    try:
        import torch
    except Exception as error:  # a torch that is broken fails in many ways
        return Finding("torch", "broken", f"cannot be imported: {error}", mend)
    if not is_supported(torch.__version__):
        return Finding("torch", "broken", f"{torch.__version__}, expected {TORCH_WANTED}", mend)
    return Finding("torch", "ok", f"{torch.__version__}, expected {TORCH_WANTED}")


def is_supported(version: str) -> bool:
    """Whether a torch of this version is one that the package was tried with."""
    major, minor = version.split(".")[:2]
    return TORCH[0] <= (int(major), int(minor)) < TORCH[1]


def check_cache() -> list[Finding]:
    """See where tokenised texts and compiled kernels are kept, how large it is, and that it can be written to."""
    folder = cache_folder(None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"recollect")
    except OSError as error:
        says = f"{folder} cannot be written to: {error.strerror or error}"
        return [Finding("cache", "broken", says, f"XDG_CACHE_HOME=~/recollect-cache {AGAIN}")]
    return [Finding("cache", "ok", f"{folder}, {_size(folder) / 2**20:.1f} MiB")]


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may have taken it away
            size += path.stat().st_size
    return size


def check_compiler() -> list[Finding]:
    """Compile a tiny function and call it, or say why not."""
    name = "C compiler"
    try:
        found = ask("compiler", "cpu")
    except OSError as error:
        if error.strerror:  # of the cache's disk
            return [Finding(name, "absent", f"what it compiles cannot be kept: {error.strerror}")]
        mend = f"CC=gcc {AGAIN}" if "CC" in os.environ else _install("gcc")
        return [Finding(name, "absent", f"{error}; plain forms are used", mend)]
    if found is None:
        return [Finding(name, "absent", f"not used: {'; '.join(why_not('cpu'))}")]
    command, is_right = found
    if not is_right:
        return [Finding(name, "absent", f"{command} compiles a tiny function wrongly", f"CC= {AGAIN}")]
    return [Finding(name, "ok", f"{command} compiles, and what it compiles runs")]


def _install(name: str) -> str:
    """Give the command by which this system gets a program."""
    managers = {"apt-get": "apt-get install -y", "dnf": "dnf install", "pacman": "pacman -S", "apk": "apk add"}
    found = next((words for tool, words in managers.items() if shutil.which(tool)), None)
    if found is None:
        return "xcode-select --install" if sys.platform == "darwin" else f"conda install {name}"
    return f"sudo {found} {name}"


def check_processor() -> list[Finding]:
    """Say which of the units that make products fast this processor has."""
    flags = set(processor().replace("\n", " ").split())
    findings = []
    for name, (spellings, without) in FLAGS.items():
        has = sorted(flags.intersection(spellings))
        state: Any = "ok" if has else "absent"
        findings.append(Finding(name, state, ", ".join(has) if has else f"this processor has none: {without}"))
    return findings


def check_extras() -> list[Finding]:
    """Say which libraries that are not needed are there."""
    findings = []
    for name, (use, extra) in EXTRAS.items():
        if find_spec(name):
            findings.append(Finding(name, "ok", use))
        else:
            findings.append(Finding(name, "absent", f"for {use}", f"pip install 'recollect[{extra}]'"))
    return [*findings, Finding("browser", "ok", "not needed: pages are files with all they show inside")]


# ---- with torch --------------------------------------------------------------------------------------


def check_threads() -> list[Finding]:
    """Compare torch's threads with the cores that this process may use."""
    import torch

    threads = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    says = f"{threads} for {cores} cores"
    if threads > cores:
        return [Finding("threads", "ok", f"{says}: they wait for each other", f"OMP_NUM_THREADS={cores} {AGAIN}")]
    return [Finding("threads", "ok", says)]


def check_memory() -> list[Finding]:
    """Say how much memory is left."""
    import torch

    from recollect.core.machine import available_memory

    return [Finding("memory", "ok", f"{available_memory(torch.device('cpu')) / 2**30:.1f} GiB available")]


def check_gpus() -> list[Finding]:
    """Name every GPU, or say why there is none."""
    import torch

    if not torch.cuda.is_available():
        return [_no_gpu(torch.version.cuda)]
    findings = []
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        capability = f"capability {found.major}.{found.minor}"
        findings.append(Finding(f"GPU {i}", "ok", f"{found.name}, {capability}, {found.total_memory / 2**30:.0f} GiB"))
    return findings


def _no_gpu(built_for: str | None) -> Finding:
    """Say why torch has no GPU: it is built without CUDA, or it finds none."""
    is_there = Path("/dev/nvidia0").exists()
    if built_for is None:
        mend = f'pip install --force-reinstall "torch{TORCH_WANTED}"' if is_there else None
        seen = "there is a GPU, but" if is_there else "no GPU is seen here, and"
        return Finding("GPU", "absent", f"{seen} this torch is built without CUDA; the CPU is used", mend)
    return Finding(
        "GPU", "absent", f"torch is built for CUDA {built_for}, but finds no GPU; the CPU is used", "nvidia-smi"
    )


def check_graphs() -> list[Finding]:
    """Capture a tiny update as training does, and replay it."""
    import torch

    name = "CUDA graphs"
    if not torch.cuda.is_available():
        return [Finding(name, "absent", "they need a GPU; updates are made plainly")]
    from recollect.core.capture import Captured

    layer = torch.nn.Linear(2, 1).cuda()
    try:
        captured = Captured(lambda x: (layer(x).sum(), None), torch.ones(1, 2), layer.parameters())
        loss, _ = captured(torch.zeros(1, 2))
        is_right = float(loss) == float(layer.bias)
    except RuntimeError as error:
        return [Finding(name, "absent", f"{str(error).splitlines()[0]}; updates are made plainly")]
    says = "updates of training are captured and replayed" if is_right else "a replayed update differs from a plain one"
    return [Finding(name, "ok" if is_right else "broken", says, None if is_right else AGAIN)]


def check_nvrtc() -> list[Finding]:
    """Look for the library that compiles CUDA kernels at run time."""
    import torch

    found = find_nvrtc()
    if found:
        return [Finding("NVRTC", "ok", found)]
    mend = "pip install nvidia-cuda-nvrtc" if torch.cuda.is_available() else None
    return [Finding("NVRTC", "absent", "libnvrtc is not found: no CUDA kernel can be compiled here", mend)]


def find_nvrtc() -> str | None:
    """Give libnvrtc: beside torch's own libraries, or the system's."""
    import torch

    home = Path(torch.__file__).parent
    beside = [home / "lib", *home.parent.glob("nvidia/*/lib"), *home.parent.glob("nvidia/*/bin")]
    files = sorted(path for folder in beside for path in folder.glob("libnvrtc*.so*") if "builtins" not in path.name)
    return str(files[0]) if files else ctypes.util.find_library("nvrtc")


def check_layers() -> list[Finding]:
    """Let the recurrent layers read and go back, so that fast forms are met: on the CPU, and in bf16 on a GPU."""
    import torch

    from recollect.models.language import RECURRENT

    places = {"cpu": torch.float32} | ({"cuda": torch.bfloat16} if torch.cuda.is_available() else {})
    for device, dtype in places.items():
        x = torch.randn(8, 32, 128, device=device, dtype=dtype)
        for kind in RECURRENT.values():
            kind(128, 128, device=device, dtype=dtype)(x)[0].sum().backward()
    return [Finding("layers", "ok", f"read and are differentiated on {' and '.join(places)}")]


def check_generation() -> list[Finding]:
    """Let a tiny model generate, and see whether its decode step is compiled."""
    from recollect.generation.sampling import generate
    from recollect.generation.settings import Settings, compiled
    from recollect.models.language import LanguageConfig, LanguageModel

    model = LanguageModel(LanguageConfig("gru", 4, width=8, depth=1)).eval()
    with compiled():
        generate(model, [[0]], Settings(tokens=32, greedy=True))
    reason = ask("decode_refusal", "cpu", model)
    if reason == "":
        return [Finding("generation", "ok", "on the CPU decode steps are recorded and compiled")]
    return [Finding("generation", "absent", f"decode steps are not compiled: {reason or 'no device code'}")]


def check_fast_forms() -> list[Finding]:
    """Return why fast forms were not used by the checks before this one, by type of device."""
    devices = ["cpu", "cuda"] if is_cuda_here() else ["cpu"]
    return [Finding(f"{device} forms", "absent", why) for device in devices for why in why_not(device)]


def is_cuda_here() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return torch.cuda.is_available()


PLAIN: tuple[Callable[[], list[Finding]], ...] = (check_cache, check_processor, check_extras)
WITH_TORCH: tuple[Callable[[], list[Finding]], ...] = (
    check_threads,
    check_memory,
    check_compiler,
    check_gpus,
    check_graphs,
    check_nvrtc,
    check_layers,
    check_generation,
    check_fast_forms,
)
