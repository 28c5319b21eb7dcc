"""The routes of the page, in small routers that any server of this package can take over."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from recollect.serving.live import Live, UnknownColumn
from recollect.serving.page import STATIC, live_page
from recollect.serving.problems import both

LONGEST = 20_000  # characters of a text
KINDS = {".js": "text/javascript", ".css": "text/css"}


class TextAsked(BaseModel):
    """A text to be read by every model."""

    text: Annotated[str, Field(max_length=LONGEST)]


class ReadingAsked(TextAsked):
    """One model's reading with knobs turned."""

    column: str
    knobs: dict[str, str] = {}


class WritingAsked(BaseModel):
    """A continuation of a prompt by one model."""

    column: str
    prompt: Annotated[str, Field(max_length=LONGEST)]
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.8
    seed: Annotated[int, Field(ge=0)] = 0


class PageRoute(APIRoute):
    """A route that tells the page what is wrong in both languages, whatever server has taken it over."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which answers errors of what was asked with `refusal`."""
        handle = super().get_route_handler()

        async def refusing(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                found = error.errors()[0]
                where = ".".join(str(part) for part in found["loc"] if part != "body")
                return refusal(ValueError(f"{where}: {found['msg']}"))
            except (ValueError, KeyError) as error:
                return refusal(error)

        return refusing


def page_routes() -> APIRouter:
    """Return the routes of the page, its modules and its style sheet."""
    router = APIRouter()

    @router.get("/", response_class=HTMLResponse)
    def page() -> str:
        return live_page()

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        path = STATIC / name
        if path.parent != STATIC or path.suffix not in KINDS or not path.is_file():
            raise HTTPException(404, f"{name}: no such file")
        return FileResponse(path, media_type=KINDS[path.suffix])

    return router


def inspection_routes(live: Live) -> APIRouter:
    """Return the routes that compute: readings, continuations, trainings."""
    router = APIRouter(prefix="/api", route_class=PageRoute)

    @router.get("/exhibit")
    def first_exhibit() -> Response:
        return JSONResponse(live.exhibit())

    @router.post("/exhibit")
    def other_exhibit(asked: TextAsked) -> Response:
        return JSONResponse(live.exhibit(asked.text))

    @router.post("/reading")
    def reading(asked: ReadingAsked) -> Response:
        return JSONResponse(live.reading(asked.column, asked.knobs, asked.text))

    @router.post("/write")
    def write(asked: WritingAsked) -> Response:
        lines = live.write(asked.column, asked.prompt, asked.temperature, asked.seed)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @router.get("/training")
    def training() -> Response:
        return JSONResponse(live.training())

    return router


def refusal(error: Exception) -> Response:
    """Return what a page is told of an error: 404 for an unknown model, 422 for what cannot be computed."""
    words = both(error)
    return JSONResponse({"detail": words["en"], "zh": words["zh"]}, 404 if isinstance(error, UnknownColumn) else 422)
