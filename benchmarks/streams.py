"""Clients of a server: many streams at once, each read without being parsed, so that the clients cost little.

`streams` keeps a number of streams open for some seconds, one request after the other in each, and then leaves. What
arrived is parsed afterwards: `Answer.text`, `Answer.times`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

END = b"\r\n0\r\n\r\n"  # of a chunked answer


@dataclass(frozen=True)
class Ask:
    """One request: its prompt, its number of symbols, and the seed of its row."""

    prompt: str
    tokens: int
    seed: int
    temperature: float = 0.8

    def request(self, host: str, model: str) -> bytes:
        """Return the request as it is sent."""
        how = {"max_tokens": self.tokens, "temperature": self.temperature, "seed": self.seed, "stream": True}
        body = json.dumps({"model": model, "prompt": self.prompt, **how}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Answer:
    """What arrived for a request, and when."""

    ask: Ask
    began: float
    arrived: list[tuple[float, bytes]] = field(default_factory=list)
    is_whole: bool = False  # not cut because the time was over

    @property
    def status(self) -> int:
        """The status of HTTP; 0: nothing arrived."""
        head = b"".join(part for _, part in self.arrived[:1])
        return int(head.split(b" ", 2)[1]) if head else 0

    def parts(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield the events that arrived whole, each with its time."""
        rest = b""
        for moment, data in self.arrived:
            rest += data
            *lines, rest = rest.split(b"\n\n")
            for line in lines:
                _, found, content = line.rpartition(b"data: ")
                if found and content != b"[DONE]":
                    yield moment, json.loads(content)

    def read(self) -> tuple[str, list[float], list[str]]:
        """Return the text, the moment of each symbol (a symbol is a character), and errors."""
        texts: list[str] = []
        times: list[float] = []
        errors = [] if self.status in (0, 200) else [f"status {self.status}"]
        for moment, part in self.parts():
            if "error" in part:
                errors.append(part["error"]["message"])
                continue
            text = part["choices"][0]["text"]
            texts.append(text)
            times += [moment] * len(text)
        return "".join(texts), times, errors


class Client(asyncio.Protocol):
    """One connection, on which requests follow one another."""

    def __init__(self, host: str, model: str, asks: Iterator[Ask], answers: list[Answer]) -> None:
        self.host = host
        self.model = model
        self.asks = asks
        self.answers = answers
        self.current: Answer | None = None
        self.transport: Any = None
        self.is_leaving = False
        self.problem = ""

    def connection_made(self, transport: Any) -> None:
        """Ask for the first text."""
        self.transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Note what arrived, and ask for the next text after the last part of one."""
        assert self.current is not None
        arrived = self.current.arrived
        arrived.append((time.perf_counter(), data))
        tail = data if len(data) >= len(END) else b"".join(part for _, part in arrived[-8:])
        if tail.endswith(END) or (len(arrived) == 1 and self.current.status != 200):
            self.current.is_whole = True
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note a connection that the server ended."""
        if not self.is_leaving:
            self.problem = f"connection lost: {exc}"

    def leave(self) -> None:
        """End the connection, whatever is still to come."""
        self.is_leaving = True
        self.transport.abort()

    def _ask(self) -> None:
        ask = next(self.asks)
        self.current = Answer(ask, time.perf_counter())
        self.answers.append(self.current)
        self.transport.write(ask.request(self.host, self.model))


async def streams(
    port: int, model: str, count: int, seconds: float, asks: Callable[[int], Iterator[Ask]]
) -> tuple[list[Answer], list[str]]:
    """Keep `count` streams open for some seconds, then leave; return the answers, and what went wrong."""
    loop = asyncio.get_running_loop()
    answers: list[Answer] = []
    clients: list[Client] = []
    for number in range(count):
        client = Client(f"127.0.0.1:{port}", model, asks(number), answers)
        clients.append(client)
        await loop.create_connection(lambda one=client: one, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(seconds)
    for client in clients:
        client.leave()
    await asyncio.sleep(0)
    return answers, [client.problem for client in clients if client.problem]
