"""The server: OpenAI's protocol, sessions, predictions and the page, in one ASGI application."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from recollect.serving.access import Bounded, Keyed, Log, Observed
from recollect.serving.completions import completion_routes
from recollect.serving.connection import timed
from recollect.serving.engine import Engine
from recollect.serving.errors import add_handlers
from recollect.serving.guard import Guard
from recollect.serving.live import Live
from recollect.serving.other_routes import other_routes
from recollect.serving.problems import PageError, not_shown
from recollect.serving.routes import inspection_routes, page_routes
from recollect.serving.served import Served
from recollect.serving.session_routes import session_routes
from recollect.serving.shown_model import MOST_MODELS, ShownModel, check_size
from recollect.serving.state import State

HEAD_SECONDS = 20.0  # for the head of a request
STALLED_SECONDS = 60.0  # for a client to take what was sent
TOLD_SECONDS = 3  # for clients to be told that the server stops
SCHEMA = "/openapi.json"


@dataclass(frozen=True)
class Access:
    """Who may talk to a server: the values of the header Host, keys, and pages of other origins."""

    hosts: Sequence[str]
    keys: Sequence[str] = ()
    origins: Sequence[str] = ()


def print_line(line: str) -> None:
    """Write a line of the log to standard error."""
    print(line, file=sys.stderr, flush=True)


def create_server(state: State, access: Access, log: Log = print_line) -> FastAPI:
    """Return the application."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        state.engine.start()
        try:
            yield
        finally:
            await state.engine.stop()

    app = FastAPI(title="recollect", docs_url=None, redoc_url=None, openapi_url=SCHEMA, lifespan=running)
    for router in (completion_routes(state), session_routes(state), other_routes(state)):
        app.include_router(router)
    app.state.page = None if access.keys else page_of(state)  # a browser has no key to send
    if app.state.page is not None:
        app.include_router(page_routes(), include_in_schema=False)
        app.include_router(inspection_routes(app.state.page), include_in_schema=False)
    add_handlers(app)
    app.add_middleware(Bounded, most=state.limits.body_bytes, seconds=state.limits.body_seconds)
    if access.keys:
        app.add_middleware(Keyed, keys=access.keys)
    if access.origins:
        methods = ["GET", "POST", "DELETE"]
        app.add_middleware(
            CORSMiddleware, allow_origins=access.origins, allow_methods=methods, allow_headers=["authorization", "*"]
        )
    app.add_middleware(Guard, hosts=access.hosts, origins=access.origins, notice=state.notice)
    app.add_middleware(Observed, metrics=state.metrics, log=log)  # the outermost: refusals are counted too
    return app


def page_of(state: State) -> Live | None:
    """Return the page of the models that it can show, which names the others; None where it can show none."""
    shown: list[ShownModel] = []
    problems: list[PageError] = []
    for one in state.models:
        try:
            check_shown(one, len(shown))
        except PageError as error:
            problems.append(error)
        else:
            shown.append(one.as_shown(len(shown)))
    told = [not_shown(error) for error in problems]
    return Live(shown, None, state.command, state.notice, state.folders, told) if shown else None


def check_shown(one: Served, number: int) -> None:
    """Raise a `PageError` for a model that the page does not show beside so many others."""
    if one.scheduler is None:
        raise PageError(
            f"{one.name}: its task is {one.task}; the page shows language models, others: rc.inspect(run, …)",
            f"{one.name}：任务是 {one.task}；页面只显示语言模型，其他请用 rc.inspect(run, …)",
        )
    if number >= MOST_MODELS:
        raise PageError(
            f"{one.name}: a page shows at most {MOST_MODELS} models; serve fewer to see it",
            f"{one.name}：一个页面最多显示 {MOST_MODELS} 个模型；减少模型即可看到它",
        )
    check_size(one.folder, sum(p.numel() for p in one.model.parameters()))


class Graceful(uvicorn.Server):
    """A server that, when stopped, lets what runs end for some seconds, and then tells the clients of the rest."""

    def __init__(self, config: uvicorn.Config, engine: Engine, grace: float) -> None:
        super().__init__(config)
        self.engine = engine
        self.grace = grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, wait for what runs, and end it when the time is over."""
        timer = asyncio.get_running_loop().call_later(self.grace, self.engine.end)
        await super().shutdown(sockets)
        timer.cancel()


def server_for(state: State, app: FastAPI, grace: float) -> uvicorn.Server:
    """Return what serves the application; when it is stopped, what runs may end for `grace` seconds."""
    config = uvicorn.Config(
        app,
        http=timed(HEAD_SECONDS, STALLED_SECONDS),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=ceil(grace) + TOLD_SECONDS,
    )
    return Graceful(config, state.engine, grace)
