"""torchrun as a user types it, with a limit of time; whatever happens, none of its processes is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT = 240.0  # seconds; on idle cores the longest takes a tenth of it


def torchrun(processes: int, *words: str, code: int = 0, **options) -> subprocess.CompletedProcess[str]:
    """Run `torchrun --nproc-per-node N WORDS…` to its end, and see that it ends with a code."""
    with started(processes, *words, **options) as agent:
        out, errors = agent.communicate(timeout=LIMIT)
    assert agent.returncode == code, errors
    return subprocess.CompletedProcess(agent.args, agent.returncode, out, errors)


@contextmanager
def started(processes: int, *words: str, restarts: int = 0, **options) -> Iterator[subprocess.Popen[str]]:
    """Yield a running torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "0.1"]
    command += ["--nproc-per-node", str(processes), "--max-restarts", str(restarts), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen(command, text=True, env=environment, **pipes) as agent:
        try:
            yield agent
        finally:
            _end(agent)


def _end(agent: subprocess.Popen[str]) -> None:
    if agent.poll() is None:
        left = list(ranks_of(agent).values())
        agent.send_signal(signal.SIGTERM)  # it ends its processes
        with suppress(subprocess.TimeoutExpired):
            agent.wait(10)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        agent.kill()


def ranks_of(agent: subprocess.Popen[str]) -> dict[int, int]:
    """Return the process numbers of the ranks that torchrun has started now."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it has just ended
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "environ").read_bytes().split(b"\0") if parent == agent.pid else []
                ranks = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
                found |= {rank: int(folder.name) for rank in ranks}
    return found
