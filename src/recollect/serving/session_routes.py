"""/v1/sessions: memories that are kept, forked, saved, loaded and deleted."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from recollect.generation.request import Request as Continuation
from recollect.generation.scheduler import Full
from recollect.generation.settings import Settings
from recollect.serving.bodies import SessionAsked
from recollect.serving.completions import encoded, failure
from recollect.serving.engine import Inbox
from recollect.serving.errors import ApiError, Json
from recollect.serving.event_stream import watched
from recollect.serving.served import Served
from recollect.serving.session_files import Kept
from recollect.serving.sessions import TAIL
from recollect.serving.state import State

Id = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


def session_routes(state: State) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/sessions")
    sessions = state.sessions

    @router.post("")
    async def create(asked: SessionAsked, request: Request) -> Response:
        served = state.find(asked.model)
        if served.scheduler is None:
            raise ApiError(400, f"model: {served.name} has the task {served.task}, which keeps no session")
        sessions.check_room()
        inbox = Inbox()
        async with watched(request, inbox.cancel):
            kept = await _read(state, served, asked.text, inbox)
        return Json(sessions.add(kept).as_json(), 201)

    @router.get("")
    async def list_all() -> Response:
        here = [one.as_json() for one in sessions.by_id.values()]
        elsewhere = [name for name in sessions.saved() if name not in sessions.by_id]
        return Json({"object": "list", "data": here, "bytes": sessions.nbytes, "saved": elsewhere})

    @router.get("/{name}")
    async def show(name: Id) -> Response:
        return Json(sessions.get(name).as_json())

    @router.post("/{name}/fork")
    async def fork(name: Id) -> Response:
        return Json(sessions.fork(name).as_json(), 201)

    @router.post("/{name}/save")
    async def save(name: Id) -> Response:
        return Json((await sessions.save(name)).as_json())

    @router.post("/{name}/load")
    async def load(name: Id) -> Response:
        return Json((await sessions.load(name)).as_json())

    @router.delete("/{name}")
    async def delete(name: Id) -> Response:
        await sessions.delete(name)
        return Json({"id": name, "object": "session", "deleted": True})

    return router


async def _read(state: State, served: Served, text: str, inbox: Inbox) -> Kept:
    """Let a model read a text, and return what it remembers."""
    assert served.scheduler is not None
    ids = await encoded(served, text)
    due = time.monotonic() + state.limits.seconds
    request = Continuation(ids=ids, settings=Settings(tokens=0), keeps=True, due=due)
    try:
        state.engine.submit(served.scheduler, request, inbox)
    except Full as error:
        raise ApiError(429, f"overloaded: {error}; try again later", Retry_After="1") from error
    ((_, event),) = await inbox.take()
    if event.memory is None or event.logits is None:
        raise failure(event, inbox)
    state.metrics.count("tokens_total", len(ids), model=served.name, kind="prompt")
    return Kept(memory=event.memory, logits=event.logits, model=served.name, symbols=len(ids), tail=text[-TAIL:])
