"""The thread that computes: it ticks the schedulers of all models and hands their events to the server's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

import torch

from recollect.core.machine import release_memory
from recollect.core.threads import fitting_threads, is_given, usable_cores
from recollect.generation.request import Event, Request, Ticket
from recollect.generation.scheduler import Scheduler

IDLE_SECONDS = 1.0  # without a request, until memory that the allocator keeps is given back
AHEAD = 2  # ticks that may be computed before the event loop has taken their events


class Stopping(RuntimeError):
    """The server ends: what would be submitted now nobody computes."""


class Inbox:
    """The events of one HTTP request, in the event loop."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.is_cancelled = False  # also what is submitted later
        self._events: deque[tuple[int, Event]] = deque()
        self._ready = asyncio.Event()

    def put(self, number: int, event: Event) -> None:
        """Add an event of the ticket with this number."""
        self._events.append((number, event))
        self._ready.set()

    async def take(self) -> list[tuple[int, Event]]:
        """Wait for events and return all that are there, each with its ticket's number."""
        await self._ready.wait()
        self._ready.clear()
        found = list(self._events)
        self._events.clear()
        return found

    def cancel(self) -> None:
        """Cancel what is still computed: nobody waits for it."""
        self.is_cancelled = True
        for ticket in self.tickets:
            ticket.cancel()


class Engine:
    """Computes for all schedulers in one thread; `start` and `stop` are called from the event loop's thread."""

    def __init__(self, schedulers: Sequence[Scheduler], notice: Callable[[str], None] = lambda text: None) -> None:
        self.schedulers = schedulers
        self.notice = notice
        self._wake = threading.Event()
        self._ahead = threading.Semaphore(AHEAD)
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start computing; events are delivered in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def end(self) -> None:
        """End every request; their clients are told."""
        self._is_stopping = True
        self._wake.set()

    async def stop(self) -> None:
        """End every request, and the thread."""
        self.end()
        while self._thread.is_alive():
            await asyncio.sleep(0.01)

    def submit(self, scheduler: Scheduler, request: Request, inbox: Inbox) -> Ticket:
        """Submit a request whose events go to an inbox; raises what `Scheduler.submit` raises, or `Stopping`."""
        if self._is_stopping:
            raise Stopping("the server is stopping; ask again when it is back")
        ticket = scheduler.submit(request, (inbox, len(inbox.tickets)))
        if inbox.is_cancelled:
            ticket.cancel()
        inbox.tickets.append(ticket)
        self._wake.set()
        return ticket

    @property
    def is_busy(self) -> bool:
        """Whether anything waits or is computed."""
        return any(scheduler.is_busy for scheduler in self.schedulers)

    def _run(self) -> None:
        if not is_given(torch.get_num_threads()):
            torch.set_num_threads(max(1, len(usable_cores()) - 1))  # one core is left to the connections
        with fitting_threads(self.notice):
            self._tick_until_stopped()
        for scheduler in self.schedulers:
            self._hand_over(scheduler.stop())

    def _tick_until_stopped(self) -> None:
        while not self._is_stopping:
            busy = [scheduler for scheduler in self.schedulers if scheduler.is_busy]
            for scheduler in busy:
                self._hand_over(scheduler.tick())
            if not busy:
                if not self._wake.wait(IDLE_SECONDS):
                    release_memory()
                    self._wake.wait()
                self._wake.clear()

    def _hand_over(self, events: list[Event]) -> None:
        if not events or self._loop is None:
            return
        while not self._ahead.acquire(timeout=1.0):
            if self._loop.is_closed():
                return
        try:
            self._loop.call_soon_threadsafe(self._dispatch, events)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self._is_stopping = True

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            inbox, number = event.ticket.note
            inbox.put(number, event)
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(self._ahead.release))  # after those who wait have been resumed
