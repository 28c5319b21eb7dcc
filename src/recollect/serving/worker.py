"""The thread that predicts for one model, one request after the other; what nobody waits for is skipped, or ended."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from recollect.core.observer import checked
from recollect.generation.scheduler import Full


class Left(Exception):
    """Nobody waits for a result any more."""


class Work:
    """One computation, and the future of its result in the event loop."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self.loop.create_future()

    def cancel(self) -> None:
        """End it: what has begun ends at its next batch, chunk or symbol."""
        if not self.result.done():
            self.result.set_exception(Left())

    def do(self) -> None:
        """Compute, in the worker's thread."""
        if self.result.done():
            return
        try:
            with checked(self._check):
                found = self.compute()
        except Exception as error:
            self._tell(self.result.set_exception, error)
        else:
            self._tell(self.result.set_result, found)

    def _check(self) -> None:
        if self.result.done():  # cancelled, or its time is over
            raise Left

    def _tell(self, tell: Callable[[Any], None], what: Any) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(lambda: None if self.result.done() else tell(what))


class Worker:
    """A thread of its own, started by the first computation; at most `queue` computations wait.

    It is a daemon: where the server stops, nobody waits for a prediction that takes long.
    """

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self._waiting: deque[Work] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, compute: Callable[[], Any]) -> Work:
        """Accept a computation; raise `Full` where too many wait."""
        work = Work(compute)
        with self._ready:
            self._waiting = deque(one for one in self._waiting if not one.result.done())  # the others hold texts
            if len(self._waiting) >= self.queue:
                raise Full(f"{len(self._waiting)} requests wait, at most {self.queue} may")
            self._waiting.append(work)
            self._ready.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
            self._thread.start()
        return work

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._waiting:
                    self._ready.wait()
                work = self._waiting.popleft()
            work.do()
            del work  # nothing is kept of it while the next is awaited
