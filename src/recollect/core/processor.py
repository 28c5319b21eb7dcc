"""The processor's name and features, read without torch."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path


@lru_cache
def processor() -> str:
    """Return the processor's name and features: code compiled for another may raise an illegal instruction."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU "))}))
