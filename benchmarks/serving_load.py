"""Load: many streams from a server with continuous batching, beside the same server that continues one row at a time.

    python benchmarks/serving_load.py [--models lstm transformer] [--seconds 60] [--streams 200]

For each model two servers run (`recollect serve`, batches of 64 and of 1), and the same clients ask one after the
other: a quarter of the time batch 1, the whole time batch 64, a quarter of the time batch 1. There are two ratios: of
symbols per second, and of symbols per second of the server's processor time; where the machine has other work the
second holds. `load` is the mean number of runnable processes in the last minute. Earlier rows of other models stay.

Every stream with a text, whole or cut by its client, must be the beginning of what `generate` gives for its prompt and
seed alone. Where a rounding may decide, as a draw lies within 1e-3 of the border between two symbols, it may differ
from there on. Streams that were cut while they waited have no text, show nothing, and are counted apart.
Afterwards more requests than places and queue hold are sent at once: the others must get 429 with Retry-After.

The exit code is 1 unless all of it holds: no error, no wrong stream, at least 5 times the symbols per second of batch
1, an empty batch and no more than a tenth (or 64 MiB) more resident memory afterwards, and the refusals.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recollect as rc
from common import earlier, save_result
from recollect.runs.run import Run
from streams import Answer, Ask, streams

SPECS = 400  # different requests
MARGIN = 1e-3
TIMES = 5.0  # symbols per second, at least, beside batch 1
GROWN = 64 * 2**20, 0.1  # bytes, or share of those before, that a server may hold more after the load
WARM = 20.0  # seconds of load before memory is measured: buffers and compiled shapes that are kept for good
BATCH, QUEUE = 64, 256
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["lstm", "transformer"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for family in options.models:
            made = {"tokenizer": "char", "budget": "5steps", "device": "cpu", "size": "small"}
            rc.train("python-docs", model=family, out=Path(folder) / family, **made)
            run = Run(Path(folder) / family, "cpu")
            rows.append({"model": family, **measured(run, options.streams, options.seconds)})
            print(json.dumps(rows[-1], indent=1), flush=True)
            how = {"streams": options.streams, "seconds": options.seconds, "batch": BATCH, "queue": QUEUE}
            kept = [row for row in earlier("serving") if row["model"] != family]
            save_result("serving", sorted([*kept, rows[-1]], key=lambda row: row["model"]), **how)
    sys.exit(0 if all(row["holds"] for row in rows) else "a condition does not hold")


def measured(run: Run, count: int, seconds: float) -> dict[str, Any]:
    """Return what one model's servers did."""
    asks = specs(sample(run))
    with ExitStack() as stack:
        many, one = (stack.enter_context(Server(run, batch)) for batch in (BATCH, 1))
        for server in (one, many):  # warm: what is allocated once is allocated
            server.load(asks, count, min(WARM, seconds))
        before = many.settled()
        phases = [(one, seconds / 4), (many, seconds), (one, seconds / 4)]
        found = [server.load(asks, count, length) for server, length in phases]
        after, held = many.settled(), many.gauge("recollect_batch_bytes")
        overload = many.overload(asks, 2 * (BATCH + QUEUE))
        answers = [answer for phase in found for answer in phase["answers"]]
    first, together, last = (rates(phase) for phase in found)
    alone = {key: (first[key] + last[key]) / 2 for key in ("symbols_per_s", "symbols_per_cpu_s")}
    equal = compared(run, answers)
    errors = [e for phase in found for e in phase["problems"]] + [e for a in answers for e in a.read()[2]]
    row = {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "together": together,
        "alone": [first, last],
        "times_symbols_per_s": together["symbols_per_s"] / alone["symbols_per_s"],
        "times_symbols_per_cpu_s": together["symbols_per_cpu_s"] / alone["symbols_per_cpu_s"],
        "errors": len(errors),
        "first_errors": errors[:3],
        **equal,
        "resident_mib": {"before": before / 2**20, "after": after / 2**20},
        "batch_bytes_afterwards": held,
        "overload": overload,
        "load": os.getloadavg()[0],
    }
    row["conditions"] = conditions(row)
    row["holds"] = all(row["conditions"].values())
    return row


def conditions(row: dict[str, Any]) -> dict[str, bool]:
    """Return what must hold of a model's row, and whether it does."""
    before, after = (row["resident_mib"][name] * 2**20 for name in ("before", "after"))
    least, share = GROWN
    return {
        "no error": row["errors"] == 0,
        "streams": row["wrong"] == 0 and row["equal"] > 0,
        "times": row["times_symbols_per_s"] >= TIMES,
        "memory": row["batch_bytes_afterwards"] == 0 and after - before <= max(least, share * before),
        "overload": row["overload"]["holds"],
    }


def sample(run: Run) -> str:
    """Return a text of the run's alphabet, of which prompts are cut."""
    ids = np.asarray(run.dataset().valid[:20_000])
    return str(run.tokenizer.decode(ids))


def specs(text: str) -> list[Ask]:
    """Return different requests: prompts of 1 to 300 symbols, 16 to 128 symbols to generate."""
    draw = np.random.default_rng(0)
    found = []
    for seed in range(SPECS):
        start, length = int(draw.integers(len(text) - 300)), int(draw.integers(1, 300))
        found.append(Ask(text[start : start + length], int(draw.integers(16, 129)), seed))
    return found


def dealt(asks: list[Ask], number: int, count: int) -> Iterator[Ask]:
    """Yield the requests of one client, again and again, each client from another place on."""
    return itertools.islice(itertools.cycle(asks), number * len(asks) // count, None)


class Server:
    """`recollect serve` of a run, in a process of its own."""

    def __init__(self, run: Run, batch: int) -> None:
        words = ["serve", str(run.folder), "--port", "0", "--device", "cpu", "--batch", str(batch)]
        command = [sys.executable, "-m", "recollect", *words, "--queue", str(QUEUE)]
        self.model = run.folder.name
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)/v1", self.process.stdout.readline())
        assert found is not None, "the server did not start"
        self.port = int(found[1])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def resident(self) -> int:
        """Return the bytes that the process holds in memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def settled(self) -> int:
        """Return the bytes that the process holds once it is idle and has given back what it had freed."""
        due = time.monotonic() + 30.0
        while self.gauge("recollect_rows") + self.gauge("recollect_waiting") > 0 and time.monotonic() < due:
            time.sleep(0.2)
        time.sleep(2.0)
        return self.resident()

    def processor_time(self) -> float:
        """Return the seconds that the process has computed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def gauge(self, name: str) -> float:
        """Return one of the numbers at /metrics."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))

    def load(self, asks: list[Ask], count: int, seconds: float) -> dict[str, Any]:
        """Keep streams open for some seconds, and return the answers with what they cost."""
        used, began = self.processor_time(), time.perf_counter()
        answers, problems = asyncio.run(
            streams(self.port, self.model, count, seconds, lambda number: dealt(asks, number, count))
        )
        return {
            "answers": answers,
            "problems": problems,
            "seconds": time.perf_counter() - began,
            "processor_seconds": self.processor_time() - used,
        }

    def overload(self, asks: list[Ask], count: int) -> dict[str, Any]:
        """Send more requests at once than the server takes, and return how it answered."""
        time.sleep(1.0)
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(self._ask, itertools.islice(itertools.cycle(asks), count)))
        statuses = [status for status, _ in answers]
        are_told = all(after is not None for status, after in answers if status == 429)
        found = {"requests": count, "ok": statuses.count(200), "refused": statuses.count(429)}
        is_alive = self._ask(asks[0])[0] == 200
        holds = found["ok"] + found["refused"] == count and found["refused"] > 0 and are_told and is_alive
        return {**found, "with_retry_after": are_told, "answers_afterwards": is_alive, "holds": holds}

    def _ask(self, ask: Ask) -> tuple[int, str | None]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {"model": self.model, "prompt": ask.prompt, "max_tokens": ask.tokens, "seed": ask.seed}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers["Retry-After"]


def rates(phase: dict[str, Any]) -> dict[str, float]:
    """Return the throughput of a phase, and its percentiles."""
    gaps: list[float] = []
    firsts: list[float] = []
    symbols = 0
    for answer in phase["answers"]:
        _, times, _ = answer.read()
        symbols += len(times)
        gaps += np.diff(times).tolist()
        firsts += [times[0] - answer.began] if times else []
    return {
        "seconds": phase["seconds"],
        "symbols": symbols,
        "streams_done": sum(answer.is_whole for answer in phase["answers"]),
        "symbols_per_s": symbols / phase["seconds"],
        "symbols_per_cpu_s": symbols / phase["processor_seconds"],
        "cpu_cores": phase["processor_seconds"] / phase["seconds"],
        "gap_ms_p50": percentile(gaps, 50),
        "gap_ms_p99": percentile(gaps, 99),
        "first_ms_p50": percentile(firsts, 50),
    }


def percentile(seconds: list[float], share: float) -> float:
    """Return a percentile in milliseconds; of nothing it is not a number."""
    return 1e3 * float(np.percentile(seconds, share)) if seconds else math.nan


# ---- what each stream should be ---------------------------------------------------------------------


def compared(run: Run, answers: list[Answer]) -> dict[str, int]:
    """Return how many streams with a text are the beginning of their own undisturbed generation."""
    expected: dict[Ask, str] = {}
    found = {"streams": 0, "empty": 0, "equal": 0, "rounded": 0, "wrong": 0}
    for answer in answers:
        ask = answer.ask
        text = answer.read()[0]
        if not text and not answer.is_whole:
            found["empty"] += 1
            continue
        if ask not in expected:
            how = {"tokens": ask.tokens, "temperature": ask.temperature, "seed": ask.seed}
            expected[ask] = run.generate(ask.prompt, **how).removeprefix(ask.prompt)
        whole = expected[ask]
        is_equal = text == whole if answer.is_whole else whole.startswith(text)
        kind = "equal" if is_equal else "rounded" if is_rounded(run, ask, text, whole) else "wrong"
        found["streams"] += 1
        found[kind] += 1
    return found


@torch.no_grad()
def is_rounded(run: Run, ask: Ask, text: str, whole: str) -> bool:
    """Return whether two texts part where the draw lies within MARGIN of the border between their symbols."""
    if not text or len(text) > len(whole):
        return False
    place = next((i for i, (one, other) in enumerate(zip(text, whole, strict=False)) if one != other), len(text))
    if place == len(text):
        return False  # one is cut
    ids = torch.from_numpy(run.tokenizer.encode(ask.prompt + whole[:place]))[None]
    logits = run.model(ids)[0][0, -1].double() / ask.temperature
    logits[list(run.tokenizer.unseen)] = -torch.inf
    below = logits.softmax(-1).cumsum(-1)
    draw = np.random.default_rng([ask.seed, 0])
    u = [draw.random() for _ in range(place + 1)][-1]
    first, last = sorted(int(run.tokenizer.encode(one)[place]) for one in (text, whole))
    return bool(abs(float(below[first]) - u) < MARGIN and float(below[last - 1] - below[first]) < MARGIN)


if __name__ == "__main__":
    main()
