"""Work that may run side by side: tasks in lanes, each of which says what it comes after.

On a GPU a lane is a stream, and to come after a task of another lane is to wait for its event; elsewhere tasks run in
the order in which they are listed. Lane 0 is the current stream: whatever is first in it is asked for before the others
part from it. All of it begins after what the current stream has been given, and what it is given next begins after all
of it: so memory that is allocated before and freed afterwards needs no further care, and a CUDA graph captures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any, Protocol

import torch


@dataclass(frozen=True, eq=False)
class StreamTask:
    """Something to do in a lane, after the tasks listed before it in that lane and after those named."""

    lane: int
    what: Any
    after: tuple[StreamTask, ...] = ()


class Schedule:
    """Tasks in an order in which they can be asked for: each stands after all that it waits for.

    It holds nothing of a call, so that one serves for many: making hundreds of tasks takes as long as asking for them.
    """

    def __init__(self, tasks: Sequence[StreamTask]) -> None:
        self.tasks = tuple(tasks)
        self.lanes = sorted({task.lane for task in tasks})
        self.awaited = {b for t in tasks for b in t.after if b.lane != t.lane}


class Lanes(Protocol):
    """Where tasks run."""

    def begin(self, lanes: Sequence[int]) -> None:
        """Let these lanes begin after all that was asked for before."""
        ...

    def do(self, lane: int, work: Callable[[], None]) -> None:
        """Do it in the lane."""
        ...

    def mark(self, lane: int) -> Any:
        """Return what others can wait for: the end of all that this lane was given so far."""
        ...

    def wait(self, lane: int, mark: Any) -> None:
        """Let what the lane is given from now on begin after the mark."""
        ...

    def end(self, lanes: Sequence[int]) -> None:
        """Let what is asked for next begin after all lanes."""
        ...


class InTurn:
    """All lanes are one: what is asked for is done at once."""

    def begin(self, lanes: Sequence[int]) -> None:
        """All before is done."""

    def do(self, lane: int, work: Callable[[], None]) -> None:
        """Do it now."""
        work()

    def mark(self, lane: int) -> Any:
        """All before is done."""

    def wait(self, lane: int, mark: Any) -> None:
        """All before is done."""

    def end(self, lanes: Sequence[int]) -> None:
        """All is done."""


class CudaStreams:
    """Lanes of a GPU. Where blocks of several wait for room, those of the more urgent lane come first."""

    def __init__(self, device: torch.device, urgency: Sequence[int]) -> None:
        self.device, self.urgency, self.before = device, urgency, torch.cuda.current_device()
        self.main = self.current = torch.cuda.current_stream(device)
        self.streams = {0: self.main}

    def begin(self, lanes: Sequence[int]) -> None:
        """Mark where the lanes part from the current stream."""
        self.start = self.main.record_event()

    def do(self, lane: int, work: Callable[[], None]) -> None:
        """Ask for it on the lane's stream, which stays the current one: to change it takes longer than to ask."""
        self._turn_to(self._stream(lane))
        work()

    def mark(self, lane: int) -> torch.cuda.Event:
        """Record an event."""
        return self.streams[lane].record_event()

    def wait(self, lane: int, mark: torch.cuda.Event) -> None:
        """Wait for it."""
        self._stream(lane).wait_event(mark)

    def end(self, lanes: Sequence[int]) -> None:
        """Go back to the stream that was current, and let it wait for all."""
        self._turn_to(self.main)
        for stream in self.streams.values():
            if stream is not self.main:
                self.main.wait_event(stream.record_event())
        if torch.cuda.current_device() != self.before:  # to turn to a stream is to turn to its device
            torch.cuda.set_device(self.before)

    def _stream(self, lane: int) -> torch.cuda.Stream:
        """Return a lane's stream, which begins when it is first used: by then the first task has been asked for."""
        if lane not in self.streams:
            self.streams[lane] = _stream(self.device, lane, -self.urgency[lane])
            self.streams[lane].wait_event(self.start)
        return self.streams[lane]

    def _turn_to(self, stream: torch.cuda.Stream) -> None:
        if stream is not self.current:
            torch.cuda.set_stream(stream)
            self.current = stream


class _Own(local):
    """A thread's streams: one thread may capture a graph while another works."""

    def __init__(self) -> None:
        self.streams: dict[tuple[torch.device, int, int], torch.cuda.Stream] = {}


_own = _Own()


def _stream(device: torch.device, lane: int, priority: int) -> torch.cuda.Stream:
    key = (device, lane, priority)
    if key not in _own.streams:
        _own.streams[key] = torch.cuda.Stream(device, priority=priority)
    return _own.streams[key]


def lanes_for(device: torch.device, urgency: Sequence[int]) -> Lanes:
    """Return lanes of a device, each as urgent as is said; one alone is the current stream."""
    return CudaStreams(device, urgency) if device.type == "cuda" and len(urgency) > 1 else InTurn()


def perform(schedule: Schedule, work: Callable[[Any], None], device: torch.device, urgency: Sequence[int]) -> None:
    """Do all tasks, each when its time has come; `urgency` is that of each lane, 0 for what can wait.

    That of lane 0 does not count: the current stream has its own.
    """
    lanes = lanes_for(device, urgency if len(schedule.lanes) > 1 else [0])
    marks: dict[StreamTask, Any] = {}
    lanes.begin(schedule.lanes)
    try:
        for task in schedule.tasks:
            for before in task.after:
                if before.lane != task.lane:
                    lanes.wait(task.lane, marks[before])
            lanes.do(task.lane, partial(work, task.what))
            if task in schedule.awaited:
                marks[task] = lanes.mark(task.lane)
    finally:
        lanes.end(schedule.lanes)
