"""The thread that predicts, and the inbox of a request: what was given up is let go of."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import suppress

import pytest

from recollect.core.threads import pace
from recollect.generation.request import Request
from recollect.generation.scheduler import Full, Scheduler
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.serving.engine import Engine, Inbox, Stopping
from recollect.serving.worker import Left, Work, Worker
from serving.served import in_a_loop

REQUEST = Request(ids=[1], settings=Settings(tokens=2))


class Body:
    """What a request holds while it waits."""


def test_what_nobody_waits_for_is_dropped_while_another_is_computed():
    async def use() -> None:
        worker = Worker(queue=2)
        free = threading.Event()
        first = worker.submit(free.wait)
        kept = []
        for _ in range(10):
            body = Body()
            kept.append(weakref.ref(body))
            work = worker.submit(lambda body=body: body)
            work.cancel()
            with pytest.raises(Left):
                await work.result
            del body, work
        gc.collect()
        assert sum(one() is not None for one in kept) <= 1  # the last, until another comes
        waiting = [worker.submit(lambda: 1) for _ in range(2)]
        with pytest.raises(Full):
            worker.submit(lambda: 2)
        free.set()
        assert await first.result
        assert await asyncio.gather(*(one.result for one in waiting)) == [1, 1]

    in_a_loop(use)


def test_what_nobody_waits_for_any_more_ends_at_its_next_part():
    """Whoever predicts calls `pace` between batches, chunks and symbols."""

    async def use() -> None:
        worker = Worker(queue=2)
        begun, ended = threading.Event(), threading.Event()

        def work() -> None:
            try:
                while True:
                    begun.set()
                    pace()
            finally:
                ended.set()

        for end in (Work.cancel, lambda one: one.result.cancel()):  # the client leaves; the time is over
            one = worker.submit(work)
            await asyncio.to_thread(begun.wait)
            end(one)
            assert await asyncio.to_thread(ended.wait, 60)
            begun.clear()
            ended.clear()
            with suppress(Left, asyncio.CancelledError):
                await one.result
        assert await worker.submit(lambda: 1).result == 1

    in_a_loop(use)


def engine() -> Engine:
    return Engine([Scheduler(LanguageModel(LanguageConfig("gru", 5, width=4, layers=1)))])


def test_a_request_whose_client_left_before_it_was_submitted_is_not_computed():
    async def use() -> None:
        one = engine()
        one.start()
        inbox = Inbox()
        inbox.cancel()
        one.submit(one.schedulers[0], REQUEST, inbox)
        ((_, event),) = await inbox.take()
        assert event.end == "cancelled"
        await one.stop()

    in_a_loop(use)


def test_a_server_that_has_ended_its_requests_accepts_no_other():
    async def use() -> None:
        one = engine()
        one.start()
        one.end()
        with pytest.raises(Stopping, match="the server is stopping"):
            one.submit(one.schedulers[0], REQUEST, Inbox())
        await one.stop()

    in_a_loop(use)
