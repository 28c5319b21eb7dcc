"""How torchrun started this process: its number among those that train one model. torch is not imported."""

from __future__ import annotations

import os
from dataclasses import dataclass

from recollect.core.settings import SettingError

START = "start with: torchrun --nproc-per-node {} -m recollect train DATA"


@dataclass(frozen=True)
class Launch:
    """The place of this process: number `rank` of `size`, `local_rank` on its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    restarts: int = 0  # how often torchrun has started the processes again after one was lost

    @property
    def is_first(self) -> bool:
        """Whether this process writes, evaluates and reports."""
        return self.rank == 0


def launched() -> Launch:
    """Read the variables that torchrun sets; without them, or for a single process, return the defaults."""
    size = _number("WORLD_SIZE", 1, least=1)
    restarts = _number("TORCHELASTIC_RESTART_COUNT", 0)
    if size == 1:
        return Launch(restarts=restarts)
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise SettingError(
                f"WORLD_SIZE: got {size} without {name}, expected all variables that torchrun sets; "
                f"{START.format(size)}, or unset WORLD_SIZE"
            )
    rank = _number("RANK", 0)
    if rank >= size:
        raise SettingError(f"RANK: got {rank}, expected less than {size}, the WORLD_SIZE; {START.format(size)}")
    return Launch(rank, size, _number("LOCAL_RANK", 0), restarts)


def _number(name: str, default: int, least: int = 0) -> int:
    word = os.environ.get(name, "") or str(default)
    if not word.isdigit() or int(word) < least:
        raise SettingError(f"{name}: got {word!r}, expected a whole number of at least {least}; {START.format('N')}")
    return int(word)
