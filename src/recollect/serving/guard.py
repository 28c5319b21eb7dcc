"""Who may talk to the server: programs on this machine that call it by its own name, and pages that it served itself.

A page from elsewhere can send requests to 127.0.0.1 too, under its own Origin or, after rebinding its name, under a
foreign Host. Both are refused before any route is reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from recollect.serving.errors import error_body
from recollect.serving.page import LIVE_POLICY

NAMES = ("127.0.0.1", "localhost", "[::1]")
MOST_TOLD = 20  # reasons to refuse that are printed
LONGEST = 300  # characters of one
HEADERS = {
    b"content-security-policy": f"{LIVE_POLICY}; frame-ancestors 'none'".encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def own_hosts(port: int) -> tuple[str, ...]:
    """Return the values of the header Host that are this server's."""
    return hosts_of(NAMES, port)


def hosts_of(names: Iterable[str], port: int) -> tuple[str, ...]:
    """Return the values of the header Host for some names at a port; clients leave out that of HTTP."""
    names = tuple(names)
    return (*(f"{name}:{port}" for name in names), *(names if port == 80 else ()))


class Guard:
    """ASGI middleware that refuses foreign hosts and origins with 403, and adds `HEADERS` to every answer.

    `notice` is told once of each reason to refuse, and of at most `MOST_TOLD`: who sends them chooses the words.
    """

    def __init__(
        self,
        app: Any,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.app = app
        self.notice = notice
        self._told: set[str] = set()
        self.hosts = frozenset(hosts)
        self.allowed = frozenset(origins)  # of other servers' pages, which were asked for
        self.origins = frozenset(f"http://{host}" for host in self.hosts) | self.allowed

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in HEADERS]
                message = {**message, "headers": [*kept, *HEADERS.items()]}
            await send(message)

        problem = self.problem(dict(scope.get("headers", [])))
        if problem is None:
            await self.app(scope, receive, send_guarded)
        else:
            self._tell(f"refused a request: {problem[:LONGEST]}")
            await _refuse(send_guarded, problem)

    def _tell(self, problem: str) -> None:
        if problem in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add(problem)
        self.notice(problem)
        if len(self._told) == MOST_TOLD:
            self.notice("further reasons to refuse requests are not printed")

    def problem(self, headers: dict[bytes, bytes]) -> str | None:
        """Return why a request with these headers is refused; None: it is not."""
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin")
        is_allowed = origin is not None and origin.decode("latin-1") in self.allowed
        if host not in self.hosts:
            return f"Host: got {host!r}, expected one of {', '.join(sorted(self.hosts))}"
        if origin is not None and origin.decode("latin-1") not in self.origins:
            return f"Origin: got {origin.decode('latin-1')!r}, expected a page that this server served"
        if headers.get(b"sec-fetch-site") == b"cross-site" and not is_allowed:
            return "Sec-Fetch-Site: got 'cross-site', expected a page that this server served"
        return None


async def _refuse(send: Any, problem: str) -> None:
    body = json.dumps({**error_body(403, problem), "detail": problem}).encode()  # for OpenAI's clients, and the page
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
