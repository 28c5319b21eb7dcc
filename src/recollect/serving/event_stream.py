"""Answers that are sent while they are computed, and requests that end when their client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request
from fastapi.responses import Response

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy passes each event on at once
]


class EventStream(Response):
    """Server-sent events; `leave` is called when the client has left."""

    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(media_type="text/event-stream")
        self.chunks = chunks
        self.leave = leave

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the chunks; each waits until the client has taken the ones before."""
        watcher = asyncio.ensure_future(_left(receive, self.leave))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async for chunk in self.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.leave()
            watcher.cancel()


@asynccontextmanager
async def watched(request: Request, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Call `leave` if the client leaves while its answer is computed."""
    watcher = asyncio.ensure_future(_left(request.receive, leave))
    try:
        yield
    finally:
        watcher.cancel()


async def _left(receive: Any, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
