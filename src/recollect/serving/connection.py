"""One connection of a client that may be slow, silent, or gone: uvicorn's protocol with limits on waiting."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def timed(head_seconds: float, stalled_seconds: float) -> type[asyncio.Protocol]:
    """Return a protocol that ends connections whose request's head does not arrive, or whose answer is not taken."""

    class Timed(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._await_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_head()
            self._cancel_stalled()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(stalled_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel_stalled()
            super().resume_writing()

        def _await_head(self) -> None:
            """Limit the time until a request begins, while none is being answered."""
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if is_answering:
                self._cancel_head()
            elif self._head is None:
                self._head = self.loop.call_later(head_seconds, self.transport.abort)

        def _cancel_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _cancel_stalled(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

    return Timed
