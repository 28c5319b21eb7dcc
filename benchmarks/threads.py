"""Threads beside a busy program: each verb as typed, with the default number of threads and with one and two fixed.

    python benchmarks/threads.py [--rounds 2] [--only lstm]

Needs two cores and the folder of texts in RECOLLECT_DATA. Alone, and beside a program that keeps one core busy, an LSTM
and a Transformer of the default size train, are evaluated on 150 kB of text and generate 500 tokens, each in a process
of its own; the three contenders take turns. Training is measured in tokens per second of updates, the other verbs in
seconds of the whole command, start included. The goal: the default is at most 1.1 times slower than the best.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from common import data_folder, earlier, save_result

FAMILIES = ("lstm", "transformer")
VERBS = ("train", "evaluate", "generate")
CONTENDERS = {"default": {}, "one": {"OMP_NUM_THREADS": "1"}, "two": {"OMP_NUM_THREADS": "2"}}
SECONDS = "2s"  # of training
CHARACTERS, TOKENS = 150_000, 500  # evaluated, generated
GOAL = 1.1
CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=FAMILIES, help="measure this family, and keep the other rows as they are")
    options = parser.parse_args()
    text = (data_folder() / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    families = [options.only] if options.only else list(FAMILIES)
    found = {(row["is_busy"], row["family"], row["verb"]): row for row in earlier("threads")}
    sizes = {"rounds": options.rounds, "train": SECONDS, "characters": CHARACTERS, "tokens": TOKENS, "goal": GOAL}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text(text, encoding="utf-8")
        (folder / "part.txt").write_text(text[-CHARACTERS:], encoding="utf-8")
        for family in families:
            seconds_of("train", family, "one", folder, "kept")  # what is evaluated; and compiles the kernels
            seconds_of("generate", family, "two", folder)
        for is_busy in (True, False):
            for family in families:
                found |= compare(family, is_busy, folder, options.rounds)
                rows = [found[key] for key in itertools.product((False, True), FAMILIES, VERBS) if key in found]
                save_result("threads", rows, setting=sizes)  # each time: a long measurement may be stopped
    return 0 if all(row["ratio"] <= GOAL for row in rows if row["is_busy"]) else 1


def compare(family: str, is_busy: bool, folder: Path, rounds: int) -> dict[tuple[bool, str, str], dict[str, Any]]:
    """Return a row for each verb, alone or beside a busy program."""
    taken: dict[tuple[str, str], list[float]] = {}
    with busy_program() if is_busy else nullcontext():
        for number, verb, who in itertools.product(range(rounds), VERBS, CONTENDERS):
            seconds = seconds_of(verb, family, who, folder, f"{who}-{number}")
            taken.setdefault((verb, who), []).append(seconds)
    rows = {}
    for verb in VERBS:
        times = {who: statistics.median(taken[verb, who]) for who in CONTENDERS}
        ratio = times["default"] / min(times["one"], times["two"])
        rows[is_busy, family, verb] = {"family": family, "verb": verb, "is_busy": is_busy, **times, "ratio": ratio}
        print(rows[is_busy, family, verb], flush=True)
    return rows


def seconds_of(verb: str, family: str, who: str, folder: Path, out: str = "") -> float:
    """Return the seconds of a command; of a training, those of a thousand tokens."""
    kept = f"kept-{family}"
    words = {
        "train": ["text.txt", "-m", family, "--budget", SECONDS, "--set", "evaluate_every=1000000", "--json"],
        "evaluate": [kept, "part.txt"],
        "generate": [kept, "The ", "--tokens", str(TOKENS)],
    }[verb]
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN} | CONTENDERS[who]
    if verb == "train":
        words += ["--out", f"{out}-{family}-{time.monotonic_ns()}" if out != "kept" else kept]
    begun = time.perf_counter()
    command = [sys.executable, "-m", "recollect", verb, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    if verb != "train":
        return time.perf_counter() - begun
    last = [json.loads(line) for line in done.stdout.splitlines() if '"tokens"' in line][-1]
    return float(1000 * last["seconds"] / last["tokens"])


@contextmanager
def busy_program() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
