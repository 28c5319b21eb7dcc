"""The floor: the machine's peak speed, measured in the same run by a large matmul and by memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from recollect.bench.contests import Contest
from recollect.bench.timing import Work, clock_of, interleave

ROUNDS = 10
SIDES = {"cpu": 1024, "cuda": 8192}  # of the matrices
COPIED = 2**30  # bytes


@dataclass(frozen=True)
class Floor:
    """A machine's peak: operations per second in large matmuls."""

    device: torch.device
    operations: float

    def seconds(self, contest: Contest) -> float:
        """Return the least time that a contest's work can take: that of its operations, or of its bytes."""
        return max(contest.operations / self.operations, contest.bytes / bytes_per_second(self.device, contest.weights))


def measure_floor(device: torch.device, dtype: torch.dtype) -> Floor:
    """Time a large matmul; the best round counts."""
    side = SIDES[device.type]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return Floor(device, 2 * side**3 / _best(device, lambda: a @ b))


def bytes_per_second(device: torch.device, size: int) -> float:
    """Return the memory bandwidth: on a GPU of a copy, on a CPU of a product of a vector and a matrix of `size` bytes.

    What fits in a cache is read many times faster than what does not, so the size matters.
    """
    if device.type == "cuda":
        held = torch.empty(COPIED, dtype=torch.uint8, device=device)
        return 2 * COPIED / _best(device, held.clone)
    matrix = torch.randn(max(size // 4096, 1), 1024)
    vector = torch.randn(1024)
    return matrix.nbytes / _best(device, lambda: matrix @ vector)


def _best(device: torch.device, work: Work) -> float:
    return min(interleave({"": work}, ROUNDS, clock=clock_of(device))[""])
