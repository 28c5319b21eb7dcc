"""Several processes that share a training, forked from this one: torchrun's would import torch first."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from recollect.core.launch import Launch
from recollect.training.workers import Group

LIMIT = 120.0  # seconds until all are ended


def forked(folder: Path, size: int, work: Callable[[Group], Any]) -> list[Any]:
    """Return what `work` returns in each of `size` processes, as JSON; raise for one that failed or hung."""
    pids = [_fork(folder, rank, size, work) for rank in range(size)]
    limit = time.monotonic() + LIMIT
    codes = {}
    while len(codes) < size and time.monotonic() < limit:
        for pid in set(pids) - codes.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in set(pids) - codes.keys():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert list(codes.values()) == [0] * size, f"exit codes {codes} of {pids}"
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(size)]


def _fork(folder: Path, rank: int, size: int, work: Callable[[Group], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        store = dist.FileStore(str(folder / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=LIMIT / 2))
        found = work(Group(Launch(rank, size, rank)))
        (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
        os._exit(0)
    except BaseException as error:
        os.write(2, f"process {rank}: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)
