"""What the API answers where something is wrong, in the form that OpenAI's clients read."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from recollect.core.serialize import FileError, WriteFailed
from recollect.serving.engine import Stopping
from recollect.serving.sessions import Busy, NoRoom, Unknown

KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
LATE = "the request took longer than the server's time limit; ask for less, or serve with --set timeout=SECONDS"


class ApiError(Exception):
    """An answer other than success: its status, what is wrong, and what to do."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Json(Response):
    """JSON in ASCII: no text that a caller sent can be impossible to send back."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def add_handlers(app: FastAPI) -> None:
    """Let an application answer errors in this form."""

    @app.exception_handler(ApiError)
    def of_the_api(request: Request, error: ApiError) -> Response:
        return Json(error_body(error.status, str(error), error.code), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    def of_a_body(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()  # of each form that a field may have: that of the right type says most
        one = next((each for each in found if not each["type"].endswith(("_type", "_parsing"))), found[0])
        name, *inner = [part for part in one["loc"] if part != "body"] or ["body"]
        where = ".".join(str(part) for part in (name, *inner) if part == name or str(part).isalnum())
        return Json(error_body(400, f"{where}: {one['msg']}"), 400)

    @app.exception_handler(HTTPException)
    def of_a_route(request: Request, error: HTTPException) -> Response:
        return Json(error_body(error.status_code, str(error.detail)), error.status_code, error.headers)

    @app.exception_handler(Unknown)
    def of_no_session(request: Request, error: Unknown) -> Response:
        return Json(error_body(404, error.args[0], "session_not_found"), 404)

    @app.exception_handler(Busy)
    @app.exception_handler(FileError)
    def of_a_session(request: Request, error: Exception) -> Response:
        return Json(error_body(409, str(error)), 409)

    @app.exception_handler(NoRoom)
    def of_sessions(request: Request, error: NoRoom) -> Response:
        return Json(error_body(429, str(error), "sessions_full"), 429, {"Retry-After": "60"})

    @app.exception_handler(Stopping)
    def of_the_end(request: Request, error: Stopping) -> Response:
        return Json(error_body(503, str(error)), 503)

    @app.exception_handler(WriteFailed)
    def of_the_disk(request: Request, error: WriteFailed) -> Response:
        return Json(error_body(507, str(error)), 507)

    @app.exception_handler(ValueError)
    def of_the_input(request: Request, error: ValueError) -> Response:
        return Json(error_body(400, str(error)), 400)
