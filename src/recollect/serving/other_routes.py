"""/v1/models, /v1/embeddings, /v1/predict, /metrics and /health."""

from __future__ import annotations

import asyncio
import binascii
import math
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from recollect.core.machine import resident_memory
from recollect.core.observer import check
from recollect.data.audio.frame_coder import FrameCoder
from recollect.generation.scheduler import Full
from recollect.serving.bodies import MOST_SYMBOLS, EmbeddingAsked, FileGiven, PredictionAsked
from recollect.serving.errors import LATE, ApiError, Json
from recollect.serving.event_stream import watched
from recollect.serving.served import Served
from recollect.serving.state import State
from recollect.serving.worker import Left

MOST_AT_ONCE = 20_000  # characters of a text that a model reads as one: nobody can end that in between
MOST_TOGETHER = 300_000  # characters of all texts of a request


def other_routes(state: State) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    async def compute(served: Served, request: Request, work: Callable[[], Any]) -> Any:
        """Do some work with a model in its thread, until the client leaves or the time is over."""
        try:
            begun = served.worker.submit(work)
        except Full as error:
            raise ApiError(429, f"overloaded: {error}; try again later", Retry_After="1") from error
        try:
            async with watched(request, begun.cancel):
                return await asyncio.wait_for(begun.result, state.limits.seconds)
        except asyncio.TimeoutError:
            raise ApiError(504, LATE) from None
        except Left:
            raise ApiError(499, "the client has left") from None

    @router.get("/v1/models")
    async def models() -> Response:
        return Json({"object": "list", "data": [one.as_json() for one in state.models]})

    @router.get("/v1/models/{name}")
    async def model(name: str) -> Response:
        return Json(state.find(name).as_json())

    @router.post("/v1/embeddings")
    async def embeddings(asked: EmbeddingAsked, request: Request) -> Response:
        served = state.find(asked.model)
        if not served.embeds:
            raise ApiError(400, f"model: {served.name} has the task {served.task}, which has no vectors of texts")
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        check_texts(texts, MOST_SYMBOLS if served.model.streams else MOST_AT_ONCE)
        vectors, read = await compute(served, request, lambda: embedded(served, texts))
        if asked.dimensions not in (None, vectors.shape[1]):
            raise ApiError(400, f"dimensions: got {asked.dimensions}, expected {vectors.shape[1]}")
        is_packed = asked.encoding_format == "base64"
        rows = [
            {"object": "embedding", "index": i, "embedding": _packed(v) if is_packed else v.tolist()}
            for i, v in enumerate(vectors)
        ]
        usage = {"prompt_tokens": read, "total_tokens": read}
        return Json({"object": "list", "data": rows, "model": served.name, "usage": usage})

    @router.post("/v1/predict")
    async def predict(asked: PredictionAsked, request: Request) -> Response:
        served = state.find(asked.model)
        if not served.predicts:
            raise ApiError(400, f"model: {served.name} continues texts; try /v1/completions")
        settings = {name: v for name, v in (("beam", asked.beam), ("nbest", asked.nbest)) if v is not None}
        found = await compute(served, request, lambda: predicted(served, asked, settings))
        return Json({"object": "list", "model": served.name, "task": served.task, "data": plain(found)})

    @router.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(state.metrics.text(gauges(state)), media_type="text/plain; version=0.0.4")

    @router.get("/health")
    async def health() -> Response:
        return Json({"status": "ok"})

    return router


def embedded(served: Served, texts: list[str]) -> tuple[Any, int]:
    """Return the vectors of texts (N, D), and how many symbols were read."""
    vectors = served.opened.embed(texts).float().cpu().numpy()
    return vectors, sum(len(served.tokenizer.encode(text)) for text in texts)


def check_texts(texts: list[str], longest: int) -> None:
    """Raise an `ApiError` for texts that are too long to be read: one of them, or all together."""
    for number, text in enumerate(texts):
        if len(text) > longest:
            raise ApiError(400, f"input.{number}: got {len(text)} characters, expected at most {longest}")
    total = sum(map(len, texts))
    if total > MOST_TOGETHER:
        raise ApiError(400, f"input: got {total} characters, expected at most {MOST_TOGETHER}; send several requests")


def _packed(vector: Any) -> str:
    return b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def gauges(state: State) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what is measured when it is asked for."""
    schedulers = {(("model", m.name),): m.scheduler for m in state.models if m.scheduler is not None}
    return {
        "recollect_rows": {label: float(one.active) for label, one in schedulers.items()},
        "recollect_waiting": {label: float(len(one.waiting)) for label, one in schedulers.items()},
        "recollect_batch_bytes": {label: float(one.batch.nbytes) for label, one in schedulers.items()},
        "recollect_sessions": {(): float(len(state.sessions.by_id))},
        "recollect_session_bytes": {(): float(state.sessions.nbytes)},
        "recollect_resident_bytes": {(): float(resident_memory())},
    }


# ---- predictions ------------------------------------------------------------------------------------


def reads_files(served: Served) -> bool:
    """Return whether a run's inputs are pictures, recordings or tables: in a request, files."""
    run: Any = served.opened
    coders = run.assets.values()
    return getattr(run.task, "predicts_files", False) or any(isinstance(one, FrameCoder) for one in coders)


def predicted(served: Served, asked: PredictionAsked, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the predictions. A text is never read as the name of a file of this machine."""
    run: Any = served.opened
    if not reads_files(served):
        if asked.files:
            raise ApiError(400, f"files: the task {served.task} reads texts; give them as input, and leave files out")
        if asked.input is None:
            raise ApiError(400, f"input: the task {served.task} reads texts; give a text, or a list of them")
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        check_texts(texts, MOST_AT_ONCE)
        return [one.as_json() for one in run.predict(texts, **settings)] if texts else []
    if not asked.files:
        raise ApiError(400, f"files: the task {served.task} reads files; give each with its name and content in base64")
    if asked.input is not None:
        raise ApiError(400, f"input: the task {served.task} reads files; leave it out")
    with tempfile.TemporaryDirectory() as folder:
        paths = [_written(file, Path(folder) / str(i)) for i, file in enumerate(asked.files)]
        found = []
        for file, path in zip(asked.files, paths, strict=True):
            check()
            rows = _of_file(run, path, file.name, settings)
            found += [_with_name(row, folder, file.name) for row in rows]
        return found


def _of_file(run: Any, path: Path, name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return [one.as_json() for one in run.predict(str(path), **settings)]
    except Left:
        raise
    except Exception as error:  # whatever a library raises for a damaged picture: the file is the caller's
        problem = str(error).replace(str(path), name)
        raise ApiError(400, f"files.{name}: cannot be read ({problem})") from error


def _written(file: FileGiven, place: Path) -> Path:
    """Write a file to a place of its own, with its ending only: names may be equal, or too long for this machine."""
    path = place.with_suffix(Path(file.name).suffix)
    try:
        path.write_bytes(b64decode(file.content, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"files.{file.name}: its content is not base64 ({error})") from error
    return path


def _with_name(row: dict[str, Any], folder: str, name: str) -> dict[str, Any]:
    """Return a prediction whose source is the file's name, not where it lay."""
    source = row.get("source")
    return {**row, "source": name} if isinstance(source, str) and source.startswith(folder) else row


def plain(value: Any) -> Any:
    """Return data as JSON can hold them: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
