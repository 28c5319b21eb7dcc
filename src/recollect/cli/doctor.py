"""The checks of `recollect doctor`: what this machine has, what of it is used, and why the rest is not.

Each check is a small function that returns diagnoses. No check depends on a working torch: that is one of the checks.
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
from typing import Literal

from recollect.core.cache import cache_folder
from recollect.core.dispatch import ask, why_not
from recollect.core.processor import processor
from recollect.core.threads import usable_cores

TORCH = ((2, 8), (2, 14))  # from the first, below the second, as in the package's metadata
TORCH_WANTED = ">=2.8,<2.14"
AGAIN = "recollect doctor"
FLAGS = {  # a feature: its names in /proc/cpuinfo, and the consequence of its absence
    "AVX-512": (("avx512f",), "matmuls use shorter vectors"),
    "AMX": (("amx_tile",), "matmuls in bfloat16 have no dedicated unit"),
    "bf16": (("avx512_bf16", "amx_bf16", "bf16"), "bfloat16 on this processor is slower than float32"),
}
EXTRAS = {  # a library: its use, and the extra that installs it
    "matplotlib": ("pictures of the benchmarks", "plots"),
    "tensorboard": ("curves in TensorBoard", "tensorboard"),
    "transformers": ("a peer in recollect bench", "peers"),
    "ray": ("comparisons on a cluster", "cluster"),
}


@dataclass(frozen=True)
class Diagnosis:
    """The state of one thing; `next` is the command that fixes it, where there is one.

    "absent": it is optional. "broken": it is required.
    """

    name: str
    state: Literal["ok", "absent", "broken"]
    says: str
    next: str | None = None


def examine() -> Iterator[Diagnosis]:
    """Yield all diagnoses."""
    yield check_python()
    torch = check_torch()
    yield torch
    for check in PLAIN:
        yield from _guarded(check)
    if torch.state == "ok":
        for check in WITH_TORCH:
            yield from _guarded(check)


def _guarded(check: Callable[[], list[Diagnosis]]) -> list[Diagnosis]:
    """Run a check; an exception in it does not stop the others."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        return [Diagnosis(name, "absent", f"the check failed: {type(error).__name__}: {error}")]


# ---- without torch -----------------------------------------------------------------------------------


def check_python() -> Diagnosis:
    """Return the version and path of the interpreter."""
    return Diagnosis("python", "ok", f"{platform.python_version()}, {sys.executable}")


def check_torch() -> Diagnosis:
    """Check that torch can be imported, and that its version is supported."""
    fix = f'pip install "torch{TORCH_WANTED}"'
    try:
        import torch
    except Exception as error:  # a broken torch fails in many ways
        return Diagnosis("torch", "broken", f"cannot be imported: {error}", fix)
    if not is_supported(torch.__version__):
        return Diagnosis("torch", "broken", f"{torch.__version__}, expected {TORCH_WANTED}", fix)
    return Diagnosis("torch", "ok", f"{torch.__version__}, expected {TORCH_WANTED}")


def is_supported(version: str) -> bool:
    """Return whether this version of torch is supported."""
    major, minor = version.split(".")[:2]
    return TORCH[0] <= (int(major), int(minor)) < TORCH[1]


def check_cache() -> list[Diagnosis]:
    """Check the cache of tokenised texts and compiled kernels: its path, its size, and that it can be written to."""
    folder = cache_folder(None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"recollect")
    except OSError as error:
        says = f"{folder} cannot be written to: {error.strerror or error}"
        return [Diagnosis("cache", "broken", says, f"XDG_CACHE_HOME=~/recollect-cache {AGAIN}")]
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may have deleted it
            size += path.stat().st_size
    return [Diagnosis("cache", "ok", f"{folder}, {size / 2**20:.1f} MiB")]


def check_compiler() -> list[Diagnosis]:
    """Compile a small function and call it."""
    name = "C compiler"
    try:
        found = ask("compiler", "cpu")
    except OSError as error:
        if error.strerror:  # of the cache's disk
            return [Diagnosis(name, "absent", f"its output cannot be saved: {error.strerror}")]
        fix = f"CC=gcc {AGAIN}" if "CC" in os.environ else _install_command("gcc")
        return [Diagnosis(name, "absent", f"{error}; torch is used instead of C kernels", fix)]
    if found is None:
        return [Diagnosis(name, "absent", f"not used: {'; '.join(why_not('cpu'))}")]
    command, is_right = found
    if not is_right:
        return [Diagnosis(name, "absent", f"{command} compiles a small function wrongly", f"CC= {AGAIN}")]
    return [Diagnosis(name, "ok", f"{command} compiles, and the result runs")]


def _install_command(name: str) -> str:
    """Return the command that installs a program on this system."""
    managers = {"apt-get": "apt-get install -y", "dnf": "dnf install", "pacman": "pacman -S", "apk": "apk add"}
    found = next((words for tool, words in managers.items() if shutil.which(tool)), None)
    if found is None:
        return "xcode-select --install" if sys.platform == "darwin" else f"conda install {name}"
    return f"sudo {found} {name}"


def check_processor() -> list[Diagnosis]:
    """Return which of the processor's units for fast matmuls are present."""
    flags = set(processor().replace("\n", " ").split())
    findings = []
    for name, (spellings, without) in FLAGS.items():
        found = sorted(flags.intersection(spellings))
        if found:
            findings.append(Diagnosis(name, "ok", ", ".join(found)))
        else:
            findings.append(Diagnosis(name, "absent", f"this processor has none: {without}"))
    return findings


def check_extras() -> list[Diagnosis]:
    """Return which optional libraries are installed."""
    findings = []
    for name, (use, extra) in EXTRAS.items():
        if find_spec(name):
            findings.append(Diagnosis(name, "ok", use))
        else:
            findings.append(Diagnosis(name, "absent", f"for {use}", f"pip install 'recollect[{extra}]'"))
    return [*findings, Diagnosis("browser", "ok", "any: pages are self-contained files")]


# ---- with torch --------------------------------------------------------------------------------------


def check_threads() -> list[Diagnosis]:
    """Compare torch's threads with the cores that this process may use."""
    import torch

    threads = torch.get_num_threads()
    cores = len(usable_cores())
    says = f"{threads} for {cores} cores"
    if threads > cores:
        return [Diagnosis("threads", "ok", f"{says}: more threads than cores", f"OMP_NUM_THREADS={cores} {AGAIN}")]
    return [Diagnosis("threads", "ok", says)]


def check_memory() -> list[Diagnosis]:
    """Return the available memory."""
    import torch

    from recollect.core.machine import available_memory

    return [Diagnosis("memory", "ok", f"{available_memory(torch.device('cpu')) / 2**30:.1f} GiB available")]


def check_gpus() -> list[Diagnosis]:
    """Return every GPU, or why torch has none: it is built without CUDA, or it finds none."""
    import torch

    if not torch.cuda.is_available():
        if torch.version.cuda is not None:
            says = f"torch is built for CUDA {torch.version.cuda}, but finds no GPU; the CPU is used"
            return [Diagnosis("GPU", "absent", says, "nvidia-smi")]
        has_gpu = Path("/dev/nvidia0").exists()
        fix = f'pip install --force-reinstall "torch{TORCH_WANTED}"' if has_gpu else None
        found = "there is a GPU, but" if has_gpu else "no GPU is found here, and"
        return [Diagnosis("GPU", "absent", f"{found} this torch is built without CUDA; the CPU is used", fix)]
    findings = []
    for i in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(i)
        size = f"{gpu.total_memory / 2**30:.0f} GiB"
        findings.append(Diagnosis(f"GPU {i}", "ok", f"{gpu.name}, capability {gpu.major}.{gpu.minor}, {size}"))
    return findings


def check_graphs() -> list[Diagnosis]:
    """Capture a small update as training does, and replay it."""
    import torch

    name = "CUDA graphs"
    if not torch.cuda.is_available():
        return [Diagnosis(name, "absent", "they need a GPU; updates are not captured")]
    from recollect.core.capture import Captured

    layer = torch.nn.Linear(2, 1).cuda()
    try:
        captured = Captured(lambda x: (layer(x).sum(), None), torch.ones(1, 2), layer.parameters())
        loss, _ = captured(torch.zeros(1, 2))
        is_right = float(loss) == float(layer.bias)
    except RuntimeError as error:
        return [Diagnosis(name, "absent", f"{str(error).splitlines()[0]}; updates are not captured")]
    says = "updates are captured and replayed" if is_right else "a replayed update differs from one without a graph"
    return [Diagnosis(name, "ok" if is_right else "broken", says, None if is_right else AGAIN)]


def check_nvrtc() -> list[Diagnosis]:
    """Check for the library that compiles CUDA kernels at run time."""
    import torch

    found = find_nvrtc()
    if found:
        return [Diagnosis("NVRTC", "ok", found)]
    fix = "pip install nvidia-cuda-nvrtc" if torch.cuda.is_available() else None
    return [Diagnosis("NVRTC", "absent", "libnvrtc is not found: no CUDA kernel can be compiled here", fix)]


def find_nvrtc() -> str | None:
    """Return the path of libnvrtc, among torch's libraries or the system's."""
    import torch

    home = Path(torch.__file__).parent
    beside = [home / "lib", *home.parent.glob("nvidia/*/lib"), *home.parent.glob("nvidia/*/bin")]
    files = sorted(path for folder in beside for path in folder.glob("libnvrtc*.so*") if "builtins" not in path.name)
    return str(files[0]) if files else ctypes.util.find_library("nvrtc")


def check_layers() -> list[Diagnosis]:
    """Run the recurrent layers forward and backward, which loads their fast forms: on the CPU, and in bf16 on a GPU."""
    import torch

    from recollect.models.language import RECURRENT

    places = {"cpu": torch.float32} | ({"cuda": torch.bfloat16} if torch.cuda.is_available() else {})
    for device, dtype in places.items():
        x = torch.randn(8, 32, 128, device=device, dtype=dtype)
        for kind in RECURRENT.values():
            kind(128, 128, device=device, dtype=dtype)(x)[0].sum().backward()
    return [Diagnosis("layers", "ok", f"forward and backward pass run on {' and '.join(places)}")]


def check_generation() -> list[Diagnosis]:
    """Generate with a small model, and check whether its decode step is compiled."""
    from recollect.generation.sampling import generate
    from recollect.generation.settings import Settings, compiled
    from recollect.models.language import LanguageConfig, LanguageModel

    model = LanguageModel(LanguageConfig("gru", 4, width=8, layers=1)).eval()
    with compiled():
        generate(model, [[0]], Settings(tokens=32, greedy=True))
    reason = ask("decode_refusal", "cpu", model)
    if reason == "":
        return [Diagnosis("generation", "ok", "on the CPU decode steps are recorded and compiled")]
    return [Diagnosis("generation", "absent", f"decode steps are not compiled: {reason or 'no device code'}")]


def check_fast_forms() -> list[Diagnosis]:
    """Return why fast forms were not used by the checks before this one, by type of device."""
    devices = ["cpu", "cuda"] if is_cuda_here() else ["cpu"]
    return [Diagnosis(f"{device} forms", "absent", why) for device in devices for why in why_not(device)]


def is_cuda_here() -> bool:
    """Return whether torch finds a GPU."""
    import torch

    return torch.cuda.is_available()


PLAIN: tuple[Callable[[], list[Diagnosis]], ...] = (check_cache, check_processor, check_extras)
WITH_TORCH: tuple[Callable[[], list[Diagnosis]], ...] = (
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
