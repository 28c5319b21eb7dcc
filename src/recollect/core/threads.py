"""How many threads compute: as many as there are cores that other programs leave free, measured during the run.

torch's OpenMP threads wait for each other at the end of every operation. If one of them shares its core with another
program, the others wait for it at every step, and two threads are slower than one. So the load is read from /proc/stat
twice a second between two updates, batches or tokens, and the number of threads follows it, never above the number that
was set before. Where a user has set it, or the system has no /proc/stat, nothing is changed, nor by an import.

See docs/decisions/0019-threads.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from recollect.core.observer import check

STAT = Path("/proc/stat")
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # a container's share of the cores (cgroup v2)
SIBLINGS = Path("/sys/devices/system/cpu/smt/active")  # 1: two logical cores share a physical one
TOPOLOGY = Path("/sys/devices/system/cpu")
GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # by these a user sets the number
FIRST, EVERY = 0.1, 0.5  # seconds of load to judge by: at first, and later
SLACK = 0.35  # of a core: other programs may use so much without costing a thread, as measured
PATIENT = 3  # looks in a row that must find more free cores before threads are added


class Usage(NamedTuple):
    """Seconds that the usable cores have computed, those of this process among them, at a time of the clock."""

    clock: float
    total: float
    own: float


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def separate_cores() -> list[int]:
    """Return usable cores that do not disturb each other: one of each physical core, as many as a container may use."""
    found: dict[str, int] = {}
    for core in sorted(usable_cores()):
        try:
            name = (TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list").read_text(encoding="utf-8").strip()
        except OSError:
            name = str(core)
        found.setdefault(name, core)
    most = max(1, int(min(len(found), container_cores())))
    return list(found.values())[:most]


def read_usage() -> Usage | None:
    """Read what the usable cores have computed since the system started; None where that is not known."""
    cores = usable_cores()
    ticks = 0
    try:
        for line in STAT.read_text(encoding="utf-8").splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
                user, nice, system, _idle, _waiting, *rest = map(int, numbers[:8])
                ticks += user + nice + system + sum(rest)  # interrupts, and what a hypervisor took
    except (OSError, ValueError):
        return None
    return Usage(perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), process_time())


def busy_cores(before: Usage, after: Usage) -> float:
    """Return how many cores other programs kept busy on average between two times."""
    other = (after.total - before.total) - (after.own - before.own)
    return max(0.0, other / (after.clock - before.clock))


def container_cores() -> float:
    """Return the number of cores that a container may use; infinite without a limit."""
    try:
        share, period = map(float, QUOTA.read_text(encoding="utf-8").split())
    except (OSError, ValueError):  # no such file, or "max"
        return float("inf")
    return share / period


def fitting(busy: float) -> int:
    """Return the number of threads that fit beside programs that keep so many cores busy."""
    free = min(len(usable_cores()) - busy, container_cores())
    return max(1, int(free + SLACK))


class ThreadWatch:
    """Sets torch's threads by the load while something is computed, at most to the number that was set before."""

    def __init__(self, most: int, notice: Callable[[str], None], since: Usage) -> None:
        self.most = self.threads = most
        self.notice = notice
        self._before = since
        self._due = since.clock + FIRST
        self._higher = 0  # looks in a row that found more free cores
        self._is_said = False

    def look(self) -> None:
        """Read the load if it is time to, and change the number of threads if it asks for that."""
        if perf_counter() < self._due:
            return
        now = read_usage() or self._before
        self._due = perf_counter() + EVERY
        if now.clock > self._before.clock:
            busy = busy_cores(self._before, now)
            self._before = now
            self._follow(busy, min(self.most, fitting(busy)))

    def _follow(self, busy: float, fit: int) -> None:
        # A quarter more at least: where there are many cores, one more or less is not worth a change.
        self._higher = self._higher + 1 if fit >= 1.25 * self.threads else 0
        if fit < self.threads or self._higher >= PATIENT:
            self.set(fit)
        if self.threads < self.most and not self._is_said:
            self._is_said = True
            why = f"other programs keep {busy:.1f} of {len(usable_cores())} cores busy"
            if container_cores() < self.most:
                why = f"this container may use {container_cores():g} cores"
            self.notice(
                f"threads: {self.threads} instead of {self.most}, because {why}; OMP_NUM_THREADS sets another number"
            )

    def set(self, threads: int) -> None:
        """Set torch's threads."""
        import torch

        self.threads = threads
        self._higher = 0
        torch.set_num_threads(threads)


class _Current(threading.local):  # torch's number of threads is one thread's own, too
    watch: ThreadWatch | None = None


_current = _Current()
_since: Usage | None = None  # when the command line started: before torch, which takes a second, is imported


def note_start() -> None:
    """Read the load when the command line starts: its commands know it before they compute."""
    global _since
    _since = read_usage()


def pace() -> None:
    """Look at the load, where threads follow it: called between two updates, batches or tokens.

    Raises where whoever asked for the computation has ended it (`observer.checked`).
    """
    check()
    if _current.watch is not None:
        _current.watch.look()


@contextmanager
def fitting_threads(notice: Callable[[str], None]) -> Iterator[None]:
    """Let torch's threads follow the load inside this context, unless a user has set their number."""
    import torch

    before = torch.get_num_threads()
    since = _since or read_usage()
    if _current.watch is not None or since is None or before == 1 or is_given(before):
        yield
        return
    watch = _current.watch = ThreadWatch(before, notice, since)
    try:
        watch.look()
        yield
    finally:
        _current.watch = None
        if watch.threads != before:
            torch.set_num_threads(before)


def is_given(threads: int) -> bool:
    """Return whether a user has set the number of threads: in the environment, or in Python to another than torch's."""
    if any(os.environ.get(name) for name in GIVEN):
        return True
    cores = len(usable_cores())
    try:
        are_siblings = SIBLINGS.read_text(encoding="utf-8").strip() == "1"
    except OSError:
        are_siblings = False
    return _since is None and threads not in (cores, cores // 2 if are_siblings else cores)
