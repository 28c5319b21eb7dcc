"""Interleaved timing: contenders alternate in one process, and must compute the same results.

A disturbance of the machine then affects all of them, so that ratios are reliable where seconds are not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

Work: TypeAlias = Callable[[], Any]
Clock: TypeAlias = Callable[[Work], float]  # does the work, and returns its seconds

K = TypeVar("K", bound=Hashable)

FORWARD, BOTH = PASSES = ("forward", "forward + backward")


class Differs(RuntimeError):
    """Two contenders compute different results, so that their times cannot be compared."""


def wall(work: Work) -> float:
    """Return the seconds of work on the CPU."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def events(work: Work) -> float:
    """Return the seconds of work on the GPU, from its first kernel to its last."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def clock_of(device: torch.device) -> Clock:
    """Return the clock for a device's work."""
    return events if device.type == "cuda" else wall


def interleave(
    contenders: Mapping[K, Work], rounds: int = 30, warmup: int = 3, clock: Clock = wall
) -> dict[K, list[float]]:
    """Time the contenders interleaved, ABAB…, and return the seconds of each round by name."""
    times: dict[K, list[float]] = {name: [] for name in contenders}
    for i in range(-warmup, rounds):
        for name, work in contenders.items():
            seconds = clock(work)
            if i >= 0:
                times[name].append(seconds)
    return times


def summary(times: list[float]) -> tuple[float, float]:
    """Return the median, and the interquartile range as a share of it."""
    low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return middle, (high - low) / middle


@dataclass(frozen=True)
class Steady:
    """The medians in seconds by name, the widest spread, and the number of attempts."""

    medians: dict[str, float]
    spread: float
    attempts: int


def time_steadily(
    contenders: Mapping[str, Work],
    rounds: int,
    *,
    limit: float = 0.25,
    attempts: int = 6,
    warmup: int = 3,
    clock: Clock = wall,
) -> Steady:
    """Time again while the spread exceeds the limit; return the attempt of the smallest spread, whatever its ratio."""
    tries: list[Steady] = []
    while len(tries) < attempts and all(one.spread > limit for one in tries):
        found = {name: summary(times) for name, times in interleave(contenders, rounds, warmup, clock).items()}
        medians = {name: median for name, (median, _) in found.items()}
        tries.append(Steady(medians, max(spread for _, spread in found.values()), len(tries) + 1))
    return replace(min(tries, key=lambda one: one.spread), attempts=len(tries))


# ---- what is timed -----------------------------------------------------------------------------------


def one_pass(name: str, module: nn.Module, read: Callable[[Tensor], Tensor], x: Tensor) -> Work:
    """Return the work to time: outputs only, or outputs and the gradients of inputs and weights."""
    module.train(name != FORWARD)

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (read(x),)

    leaves = [x.clone().requires_grad_(), *module.parameters()]
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x)

    def forward_backward() -> tuple[Tensor, ...]:
        y = read(leaves[0])
        return y, *torch.autograd.grad(y, leaves, upstream)

    return forward if name == FORWARD else forward_backward


def largest_difference(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], tolerance: float) -> float:
    """Return the largest difference, relative to each tensor's largest value; raise `Differs` beyond `tolerance`."""
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(ours, theirs, strict=True)]
    difference = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    if not difference <= tolerance:
        raise Differs(f"results: got a relative difference of {difference:.1e}, expected at most {tolerance}")
    return difference
