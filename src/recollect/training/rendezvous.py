"""How the processes of one start of torchrun find each other.

torchrun keeps one store for all its restarts, so that a process may read where another listened that was killed. Here
each start has names of its own in the store.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from recollect.core.launch import Launch
from recollect.core.settings import SettingError

T = TypeVar("T")

LONGEST = timedelta(hours=24)  # that a process waits for another: the first one evaluates while the others wait
VARIABLE = "RECOLLECT_RENDEZVOUS"  # by this variable a user sets …
PATIENCE = 120.0  # … the seconds in which all processes have to be found
IN_USE = "address already in use"  # in the message of an error that has no type of its own
GRACE = 1.0  # seconds beyond, in which torch itself reports what is wrong
PAUSE = 0.01  # seconds between two looks into the store


def meet(launch: Launch, device: torch.device) -> None:
    """Connect the processes: by gloo on CPUs, also for what they tell each other, and by NCCL on GPUs.

    Raises a `SettingError` where the others are not found.
    """
    limit = _patience()
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, size = _within(limit + GRACE, lambda: next(rendezvous("env://", timeout=timedelta(seconds=limit))))
        store.set_timeout(timedelta(seconds=limit))
        own = PrefixStore(name_of_start(store, rank, size, limit), store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=LONGEST)
    except (RuntimeError, ValueError) as error:
        if IN_USE in str(error).lower():
            port = os.environ["MASTER_PORT"]
            raise SettingError(
                f"MASTER_PORT: got {port}, on which another program listens; expected a free port: choose another, as "
                f"in torchrun --master-port {(int(port) + 1) % 2**16}, or let torchrun --standalone choose one"
            ) from error
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} within {limit:g} s"
        raise SettingError(
            f"MASTER_ADDR: process {launch.rank} of {launch.size} did not find the others at {where} "
            f"({str(error).splitlines()[0]}); start the same torchrun command on every machine, with one "
            "--rdzv-endpoint that all of them reach"
        ) from error
    atexit.register(dist.destroy_process_group)


def _within(limit: float, work: Callable[[], T]) -> T:
    """Return what some work makes; raise a RuntimeError after a limit: of a foreign program torch awaits any answer."""
    made: Future[T] = Future()

    def make() -> None:
        try:
            made.set_result(work())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=make, daemon=True).start()
    try:
        return made.result(limit)
    except futures.TimeoutError:
        raise RuntimeError("no answer; another program may listen there") from None


def _patience() -> float:
    word = os.environ.get(VARIABLE) or str(PATIENCE)
    try:
        limit = float(word)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise SettingError(f"{VARIABLE}: got {word!r}, expected a number of seconds above 0, as in {PATIENCE:g}")
    return limit


def name_of_start(store: Store, rank: int, size: int, limit: float) -> str:
    """Return a name that the processes of this start have drawn, and none of an earlier start.

    Each puts a word of its own into the store. The first lists the words that it finds, which may be of an earlier
    start, until each of the others has found its own in the list and has answered with the first one's: the name.
    """
    word = uuid4().hex
    until = time.monotonic() + limit
    store.set(f"recollect/word/{rank}", word)
    while time.monotonic() < until:
        if rank == 0:
            words = [store.get(f"recollect/word/{other}").decode() for other in range(size)]
            store.set("recollect/words", " ".join(words))
            if all(_read(store, f"recollect/answer/{other}") == word for other in range(1, size)):
                return word
        else:
            words = store.get("recollect/words").decode().split()
            if words[rank : rank + 1] == [word]:
                store.set(f"recollect/answer/{rank}", words[0])
                return words[0]
        time.sleep(PAUSE)
    raise RuntimeError("the others did not start together with it")


def _read(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""
