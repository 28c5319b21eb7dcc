"""Concurrent work: tasks on streams, each of which names the tasks it comes after.

To come after a task on another CUDA stream is to wait for its event; on other devices tasks run in the order in which
they are listed. Stream 0 is the current one: its first task is launched before the others fork from it. All tasks begin
after the work already on the current stream, and what is launched there next begins after all of them: so memory that
is allocated before and freed afterwards needs no `record_stream`, and a CUDA graph captures it all.
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
    """Work for a stream, after the tasks listed before it on that stream and after those named."""

    stream: int
    what: object
    after: tuple[StreamTask, ...] = ()


class Schedule:
    """Tasks in an order in which they can be launched: each is listed after all that it waits for.

    It holds nothing of one call, so it is reused: making hundreds of tasks takes as long as launching them.
    """

    def __init__(self, tasks: Sequence[StreamTask]) -> None:
        self.tasks = tuple(tasks)
        self.streams = sorted({task.stream for task in tasks})
        self.awaited = {b for t in tasks for b in t.after if b.stream != t.stream}


class StreamSet(Protocol):
    """Where tasks run."""

    def begin(self, streams: Sequence[int]) -> None:
        """Let these streams begin after all that was launched before."""
        ...

    def do(self, stream: int, work: Callable[[], None]) -> None:
        """Launch it on the stream."""
        ...

    def mark(self, stream: int) -> Any:
        """Return what others can wait for: the end of all that was launched on this stream so far."""
        ...

    def wait(self, stream: int, mark: Any) -> None:
        """Let what is launched on the stream from now on begin after the mark."""
        ...

    def end(self, streams: Sequence[int]) -> None:
        """Let what is launched next begin after all streams."""
        ...


class InTurn:
    """All streams are one: each task is done at once."""

    def begin(self, streams: Sequence[int]) -> None:
        """Do nothing: everything before is done."""

    def do(self, stream: int, work: Callable[[], None]) -> None:
        """Run it now."""
        work()

    def mark(self, stream: int) -> Any:
        """Do nothing: everything before is done."""

    def wait(self, stream: int, mark: Any) -> None:
        """Do nothing: everything before is done."""

    def end(self, streams: Sequence[int]) -> None:
        """Do nothing: everything is done."""


class CudaStreams:
    """Streams of a GPU. Where blocks of several wait for a multiprocessor, those of the higher priority come first."""

    def __init__(self, device: torch.device, urgency: Sequence[int]) -> None:
        self.device, self.urgency, self.before = device, urgency, torch.cuda.current_device()
        self.main = self.current = torch.cuda.current_stream(device)
        self.streams = {0: self.main}

    def begin(self, streams: Sequence[int]) -> None:
        """Record the event where other streams fork from the current one."""
        self.start = self.main.record_event()

    def do(self, stream: int, work: Callable[[], None]) -> None:
        """Launch it on that stream, which stays the current one: setting it takes longer than a launch."""
        self._turn_to(self._stream(stream))
        work()

    def mark(self, stream: int) -> torch.cuda.Event:
        """Record an event."""
        return self.streams[stream].record_event()

    def wait(self, stream: int, mark: torch.cuda.Event) -> None:
        """Wait for it."""
        self._stream(stream).wait_event(mark)

    def end(self, streams: Sequence[int]) -> None:
        """Restore the stream that was current, and let it wait for all."""
        self._turn_to(self.main)
        for stream in self.streams.values():
            if stream is not self.main:
                self.main.wait_event(stream.record_event())
        if torch.cuda.current_device() != self.before:  # setting a stream sets its device
            torch.cuda.set_device(self.before)

    def _stream(self, stream: int) -> torch.cuda.Stream:
        """Return a stream by number; it forks when it is first used: by then the first task has been launched."""
        if stream not in self.streams:
            self.streams[stream] = _stream(self.device, stream, -self.urgency[stream])
            self.streams[stream].wait_event(self.start)
        return self.streams[stream]

    def _turn_to(self, stream: torch.cuda.Stream) -> None:
        if stream is not self.current:
            torch.cuda.set_stream(stream)
            self.current = stream


class _Own(local):
    """A thread's streams: one thread may capture a CUDA graph while another works."""

    def __init__(self) -> None:
        self.streams: dict[tuple[torch.device, int, int], torch.cuda.Stream] = {}


_own = _Own()


def _stream(device: torch.device, stream: int, priority: int) -> torch.cuda.Stream:
    key = (device, stream, priority)
    if key not in _own.streams:
        _own.streams[key] = torch.cuda.Stream(device, priority=priority)
    return _own.streams[key]


def streams_for(device: torch.device, urgency: Sequence[int]) -> StreamSet:
    """Return streams of a device with these priorities; one alone is the current stream."""
    return CudaStreams(device, urgency) if device.type == "cuda" and len(urgency) > 1 else InTurn()


def perform(schedule: Schedule, work: Callable[[Any], None], device: torch.device, urgency: Sequence[int]) -> None:
    """Launch all tasks in order; `urgency` is the priority of each stream, 0 for what can wait.

    That of stream 0 does not count: the current stream has its own.
    """
    streams = streams_for(device, urgency if len(schedule.streams) > 1 else [0])
    marks: dict[StreamTask, Any] = {}
    streams.begin(schedule.streams)
    try:
        for task in schedule.tasks:
            for before in task.after:
                if before.stream != task.stream:
                    streams.wait(task.stream, marks[before])
            streams.do(task.stream, partial(work, task.what))
            if task in schedule.awaited:
                marks[task] = streams.mark(task.stream)
    finally:
        streams.end(schedule.streams)
