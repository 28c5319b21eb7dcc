"""What every request passes before a route is reached: the log, the key, and the limits of a body. All plain ASGI."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from recollect.serving.errors import error_body
from recollect.serving.metrics import Metrics

Scope = MutableMapping[str, Any]
Log = Callable[[str], None]
LEFT = 499  # in the log: the client has left before an answer was begun


class Observed:
    """Counts every answer and logs it as one line of JSON: never a prompt, a text, a header or a query."""

    def __init__(self, app: Any, metrics: Metrics, log: Log) -> None:
        self.app = app
        self.metrics = metrics
        self.log = log

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, and note its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        is_begun = False

        async def send_noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status, is_begun
            if message["type"] == "http.response.start":
                status = message["status"]
                is_begun = True
            await send(message)

        scope.setdefault("state", {})
        try:
            await self.app(scope, receive, send_noted)
        except Exception as error:  # its message, and a traceback's, may hold a prompt
            self._note_fault(error)
            if not is_begun:
                await answer(send_noted, 500, "the server failed; its log says where", [])
        else:
            status = status if is_begun else LEFT
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _note_fault(self, error: Exception) -> None:
        where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in extract_tb(error.__traceback__)]
        line = {"time": round(time.time(), 3), "event": "fault", "kind": type(error).__name__, "where": where[-6:]}
        self.log(json.dumps(line))

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        self.metrics.count("requests_total", route=route, status=str(status))
        self.metrics.observe("request_seconds", seconds)
        job = scope["state"].get("job")
        facts = {} if job is None else {"model": job.served.name, "id": job.id, **job.usage}
        line = {"time": round(time.time(), 3), "event": "request", "method": scope["method"], "route": route}
        self.log(json.dumps({**line, "status": status, "seconds": round(seconds, 4), **facts}))


class Keyed:
    """Lets requests through that bring a key, as `Authorization: Bearer KEY`; compared in constant time."""

    def __init__(self, app: Any, keys: Sequence[str]) -> None:
        self.app = app
        self.keys = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it with 401."""
        if scope["type"] != "http" or self._is_known(scope):
            await self.app(scope, receive, send)
            return
        message = "the key is missing or wrong; send it as Authorization: Bearer KEY"
        await answer(send, 401, message, [(b"www-authenticate", b"Bearer")])

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][:7].lower() != b"bearer ":
            return False
        found = _digest(given[0][7:])
        matches = [hmac.compare_digest(found, key) for key in self.keys]  # every key: the time tells nothing
        return any(matches)


class Bounded:
    """Reads the body of a request, within a size and a time, before the route is called."""

    def __init__(self, app: Any, most: int, seconds: float) -> None:
        self.app = app
        self.most = most
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on with its whole body, or refuse it with 413 or 408."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        close = [(b"connection", b"close")]
        if any(not value.isdigit() or len(value) > 18 or int(value) > self.most for value in lengths):
            await answer(send, 413, f"the body is too large, expected at most {self.most} bytes", close)
            return
        try:
            body = await asyncio.wait_for(self._body(receive), self.seconds)
        except asyncio.TimeoutError:
            await answer(send, 408, f"the body did not arrive within {self.seconds:g} seconds", close)
            return
        if body is None:
            return  # the client has left
        if len(body) > self.most:
            await answer(send, 413, f"the body is too large, expected at most {self.most} bytes", close)
            return
        first: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return first.pop() if first else await receive()

        await self.app(scope, replay, send)

    async def _body(self, receive: Any) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        while size <= self.most:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if not message.get("more_body", False):
                break
        return b"".join(chunks)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


async def answer(send: Any, status: int, message: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Send an error."""
    body = json.dumps(error_body(status, message)).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
