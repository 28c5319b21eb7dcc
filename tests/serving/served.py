"""A server on a socket of its own, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

from recollect.serving.app import listen
from recollect.serving.guard import own_hosts
from recollect.serving.served import open_served
from recollect.serving.server import Access, create_server, server_for
from recollect.serving.state import Limits, State

KEY = "a key of the tests, long enough"
PATIENCE = 120.0  # seconds: an overloaded machine is slow


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something is so; what never comes is a failure, not a test that hangs."""
    due = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < due
        time.sleep(0.002)


def in_a_loop(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run asynchronous work in a thread of its own: a browser of the tests has the main thread's event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(asyncio.wait_for(work(), PATIENCE))).result()


@dataclass
class Serving:
    """A running server: its address, its state, the lines of its log, and clients."""

    port: int
    state: State
    lines: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # what the person at the terminal reads
    key: str = "none"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        with self.http() as client:
            answer = client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        with self.http() as client:
            return client.get(path).json()

    def wait_until_idle(self, *, began: bool = False) -> None:
        """Wait until nothing is computed, with `began` after something has been."""
        if began:
            wait_for(lambda: self.state.engine.is_busy)
        wait_for(lambda: not self.state.engine.is_busy)

    def logged(self, count: int = 0) -> list[dict[str, Any]]:
        """Return the lines of the log, at least so many: a line is written after its answer was sent."""
        wait_for(lambda: len(self.lines) >= count)
        return [json.loads(line) for line in self.lines]


@contextmanager
def serving(
    folders: Sequence[Path],
    *,
    most: int = 64,
    queue: int = 256,
    limits: Limits | None = None,
    sessions: Path | None = None,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
    grace: float = 1,
    most_bytes: int | None = None,
) -> Iterator[Serving]:
    """Serve runs until the block ends; then the server stops as it does for SIGTERM."""
    models = open_served([str(folder) for folder in folders], "cpu", most=most, queue=queue, most_bytes=most_bytes)
    told: list[str] = []
    state = State.of(models, limits, sessions, told.append, [str(folder) for folder in folders], "recollect serve RUNS")
    with listen(0) as sock:
        port = sock.getsockname()[1]
        found = Serving(port, state, told=told, key=keys[0] if keys else "none")
        access = Access(own_hosts(port), keys, origins)
        server = server_for(state, create_server(state, access, found.lines.append), grace)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        try:
            yield found
        finally:
            server.should_exit = True
            thread.join()
            state.sessions.save_all()
            state.sessions.close()
