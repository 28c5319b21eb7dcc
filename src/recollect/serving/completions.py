"""/v1/completions: texts that continue prompts, or a session."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from recollect.generation.prefill import IdArray
from recollect.generation.request import Event, Request as Continuation
from recollect.generation.scheduler import Full
from recollect.generation.settings import Settings
from recollect.serving.bodies import CompletionAsked
from recollect.serving.engine import Inbox
from recollect.serving.errors import LATE, ApiError, Json, error_body
from recollect.serving.event_stream import EventStream, watched
from recollect.serving.served import Served
from recollect.serving.session_files import Kept
from recollect.serving.sessions import TAIL, Session
from recollect.serving.state import State

LONG = 2000  # characters of a prompt
IMPOSSIBLE = -9999.0  # what OpenAI's API writes for the log-probability of what cannot be
WITHOUT_EFFECT = {"suffix": None, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": None}
PROBLEMS = {
    "late": (504, LATE),
    "cancelled": (503, "the server is stopping"),
    "broken": (500, "the model failed"),
}


@dataclass(eq=False)
class Job:
    """One request to /v1/completions while it is answered."""

    asked: CompletionAsked
    served: Served
    session: Session | None
    prompts: list[tuple[str, IdArray]]  # text and ids
    seed: int
    inbox: Inbox = field(default_factory=Inbox)
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    generated: int = 0
    open_rows: int = 0
    holds: bool = False  # the session, which no other request can then continue

    def release(self, state: State, kept: Kept | None = None) -> None:
        """Let go of the session, once; what it remembers is replaced where that is given."""
        if self.session is not None and self.holds:
            self.holds = False
            state.sessions.finish(self.session, kept)

    @property
    def n(self) -> int:
        """Rows for each prompt."""
        return self.asked.n or 1

    @property
    def usage(self) -> dict[str, int]:
        """Symbols read and generated."""
        read = sum(len(ids) for _, ids in self.prompts)
        return {"prompt_tokens": read, "completion_tokens": self.generated, "total_tokens": read + self.generated}

    def head(self) -> dict[str, Any]:
        """Return what every answer begins with."""
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.served.name}


def completion_routes(state: State) -> APIRouter:
    """Return the route."""
    router = APIRouter(prefix="/v1")

    @router.post("/completions")
    async def complete(asked: CompletionAsked, request: Request) -> Response:
        job = await begin(state, asked)
        request.scope["state"]["job"] = job
        if asked.stream:
            return EventStream(streamed(state, job), partial(leave, state, job))
        async with watched(request, job.inbox.cancel):
            return Json(await collected(state, job))

    return router


def leave(state: State, job: Job) -> None:
    """End a job whose client has left, or that is answered."""
    job.inbox.cancel()
    job.release(state)


# ---- from a body to requests ------------------------------------------------------------------------


async def begin(state: State, asked: CompletionAsked) -> Job:
    """Submit what is asked for; raise an `ApiError` or a ValueError for what cannot be done."""
    served = state.find(asked.model)
    if served.scheduler is None:
        raise ApiError(
            400, f"model: {served.name} has the task {served.task}, which continues no text; try /v1/predict"
        )
    for name, default in WITHOUT_EFFECT.items():
        if getattr(asked, name) not in (None, default, {}):
            raise ApiError(400, f"{name}: not supported; leave it out")
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise ApiError(400, "best_of: not supported; leave it out")
    if asked.echo and asked.logprobs is not None:
        raise ApiError(400, "logprobs: not of a prompt; leave echo out")
    prompts = await _prompts(asked, served)
    if len(prompts) * (asked.n or 1) > served.scheduler.most:
        raise ApiError(400, f"n: got {len(prompts) * (asked.n or 1)} rows, expected at most {served.scheduler.most}")
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    session = _session(state, asked, served, prompts)
    job = Job(asked, served, session, prompts, seed, holds=session is not None)
    try:
        _submit(state, job, settings_of(asked, served, seed))
    except BaseException:
        leave(state, job)
        raise
    state.metrics.count("tokens_total", job.usage["prompt_tokens"], model=served.name, kind="prompt")
    return job


def settings_of(asked: CompletionAsked, served: Served, seed: int) -> Settings:
    """Return the settings of sampling: those of `recollect generate`, under OpenAI's names."""
    temperature = 1.0 if asked.temperature is None else asked.temperature
    return Settings(
        tokens=16 if asked.max_tokens is None else asked.max_tokens,
        greedy=temperature == 0,
        temperature=temperature or 1.0,
        top_k=asked.top_k,
        top_p=None if asked.top_p in (None, 1) else asked.top_p,
        min_p=asked.min_p,
        repetition_penalty=1.0 if asked.repetition_penalty is None else asked.repetition_penalty,
        seed=seed,
        stop=served.ends,
        prohibited=served.tokenizer.unseen,
    )


async def encoded(served: Served, text: str) -> IdArray:
    """Return a text's ids; those of a long one are found in a thread, so that other requests need not wait."""
    encode = partial(served.tokenizer.encode, text, strict=True)
    found = await asyncio.to_thread(encode) if len(text) > LONG else encode()
    return np.asarray(found, dtype=np.int64)


async def _prompts(asked: CompletionAsked, served: Served) -> list[tuple[str, IdArray]]:
    given = asked.prompt
    is_one = isinstance(given, str) or not given or isinstance(given[0], int)
    found = []
    for one in [given] if is_one else given:
        if isinstance(one, str):
            found.append((one, await encoded(served, one)))
        else:
            ids = np.asarray(one, dtype=np.int64)
            if (ids >= served.tokenizer.vocab_size).any():
                raise ApiError(400, f"prompt: got the id {ids.max()}, expected ids below {served.tokenizer.vocab_size}")
            found.append((served.tokenizer.decode(ids), ids))
    return found


def _session(state: State, asked: CompletionAsked, served: Served, prompts: list[Any]) -> Session | None:
    """Return the session that is continued, marked as busy."""
    if asked.session is None:
        return None
    if len(prompts) != 1 or (asked.n or 1) != 1:
        raise ApiError(400, "session: is continued by one prompt in one row; fork it for more")
    session = state.sessions.get(asked.session)
    if session.kept.model != served.name:
        raise ApiError(400, f"session: is one of the model {session.kept.model}, got {served.name}")
    state.sessions.check_room()
    return state.sessions.begin(asked.session)


def _submit(state: State, job: Job, settings: Settings) -> None:
    asked = job.asked
    kept = None if job.session is None else job.session.kept
    assert job.served.scheduler is not None
    for text, ids in job.prompts:
        continuation = Continuation(
            ids=ids,
            settings=settings,
            numbers=range(job.n),
            memory=None if kept is None else kept.memory,
            logits=None if kept is None else kept.logits,
            keeps=kept is not None,
            alternatives=asked.logprobs,
            codec=job.served.tokenizer,
            after=(text if kept is None else kept.tail + text)[-TAIL:],
            stop=[] if asked.stop is None else [asked.stop] if isinstance(asked.stop, str) else asked.stop,
            due=time.monotonic() + state.limits.seconds,
        )
        try:
            state.engine.submit(job.served.scheduler, continuation, job.inbox)
        except Full as error:
            raise ApiError(429, f"overloaded: {error}; try again later", Retry_After="1") from error
        job.open_rows += job.n


# ---- from events to an answer -----------------------------------------------------------------------


class Choices:
    """The texts of a job's rows, as its events arrive."""

    def __init__(self, state: State, job: Job) -> None:
        self.state = state
        self.job = job
        self.texts = [""] * (len(job.prompts) * job.n)
        self.prompts = [text for text, _ in job.prompts for _ in range(job.n)]
        self.last: list[float] = [time.monotonic()] * len(self.texts)
        self.began = [False] * len(self.texts)

    def add(self, number: int, event: Event) -> dict[str, Any] | None:
        """Return the part of a choice that an event adds; None: nothing. Raise an `ApiError` where a row failed."""
        job = self.job
        place = number * job.n + event.row
        job.generated += event.id >= 0
        if event.end is not None:
            job.open_rows -= 1
            self._end(event)
        text = event.text
        if job.asked.echo and not self.began[place]:
            text = self.prompts[place] + text
        if not text and event.end is None and job.asked.logprobs is None:
            return None
        self._note_time(place)
        offset = len(self.texts[place])
        self.texts[place] += text
        return {"text": text, "index": place, "logprobs": self._log_p(event, offset), "finish_reason": event.end}

    def _note_time(self, place: int) -> None:
        now = time.monotonic()
        name = "token_gap_seconds" if self.began[place] else "first_token_seconds"
        self.state.metrics.observe(name, now - self.last[place])
        self.last[place] = now
        self.began[place] = True

    def _end(self, event: Event) -> None:
        """Keep what the session remembers now; raise for a row whose end is a failure."""
        job = self.job
        if event.end in PROBLEMS:
            raise failure(event, job.inbox)
        if job.session is None or event.memory is None or event.logits is None:
            return
        (text, ids), before = job.prompts[0], job.session.kept
        whole = before.tail + text + self.texts[0] + event.text
        kept = Kept(
            memory=event.memory,
            logits=event.logits,
            model=before.model,
            symbols=before.symbols + len(ids) + job.generated,
            tail=whole[-TAIL:],
        )
        job.release(self.state, kept)

    def _log_p(self, event: Event, offset: int) -> dict[str, Any] | None:
        if self.job.asked.logprobs is None:
            return None
        if event.id < 0:
            return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        decode = self.job.served.tokenizer.decode
        best = {decode([i]): _finite(p) for i, p in reversed(event.alternatives)}  # of equal texts the likelier
        return {
            "tokens": [decode([event.id])],
            "token_logprobs": [_finite(event.log_p)],
            "top_logprobs": [best],
            "text_offset": [offset],
        }


def failure(event: Event, inbox: Inbox) -> ApiError:
    """Return what is answered where a row's end is a failure."""
    if event.end == "cancelled" and inbox.is_cancelled:
        return ApiError(499, "the client has left")
    status, message = PROBLEMS[event.end or "broken"]
    return ApiError(status, f"{message}{f' ({event.problem})' if event.problem else ''}")


def _finite(log_p: float) -> float:
    return max(log_p, IMPOSSIBLE)


async def events_of(state: State, job: Job) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the parts of choices as they are generated, those of one moment together."""
    choices = Choices(state, job)
    try:
        while job.open_rows:
            parts = [choices.add(number, event) for number, event in await job.inbox.take()]
            yield [part for part in parts if part is not None]
    finally:
        leave(state, job)
        state.metrics.count("tokens_total", job.generated, model=job.served.name, kind="generated")


async def collected(state: State, job: Job) -> dict[str, Any]:
    """Return the whole answer."""
    count = len(job.prompts) * job.n
    whole: list[dict[str, Any]] = [
        {"text": "", "index": i, "logprobs": None, "finish_reason": None} for i in range(count)
    ]
    async for parts in events_of(state, job):
        for part in parts:
            one = whole[part["index"]]
            one["text"] += part["text"]
            one["finish_reason"] = part["finish_reason"]
            if part["logprobs"] is not None:
                one["logprobs"] = _joined(one["logprobs"], part["logprobs"])
    extra = {} if job.session is None else {"session": job.session.as_json()}
    return {**job.head(), "choices": whole, "usage": job.usage, "seed": job.seed, **extra}


def _joined(before: dict[str, list[Any]] | None, part: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return part if before is None else {name: before[name] + part[name] for name in before}


async def streamed(state: State, job: Job) -> AsyncIterator[bytes]:
    """Yield the answer as server-sent events, one for each part of a text."""
    head = json.dumps(job.head(), separators=(",", ":"))[:-1].encode()
    options = job.asked.stream_options
    usage = b',"usage":null' if options is not None and options.include_usage else b""  # but in the last one
    try:
        async for parts in events_of(state, job):
            if parts:
                texts = [json.dumps(part).encode() for part in parts]
                yield b"".join(b'data: %b,"choices":[%b]%b}\n\n' % (head, text, usage) for text in texts)
        if usage:
            yield b'data: %b,"choices":[],"usage":%b}\n\n' % (head, json.dumps(job.usage).encode())
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield b"data: %b\n\n" % json.dumps(error_body(error.status, str(error))).encode()
