"""Kill a comparison and its cells at random moments: the finished comparison equals the undisturbed one, cell for cell.

    python benchmarks/comparison_kills.py [--kills 10]

Two models with two seeds each beside a Markov chain, under a budget of steps: once undisturbed, once with SIGKILL at
random moments, of the parent or of a cell that is running. Two of three kills come a random time after a random update
of all trainings, the third a random time after the command was given, also before anything is trained. Whenever the
parent has ended without a whole comparison, the same command is given again. What does not measure time or memory must
be equal: every item's figure, curves, updates and symbols, the samples, and what the rules of the verdict give.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save_result

SEED, STEPS = 0, 500
TRAININGS = 4
LATEST = 12.0  # seconds after the command was given, of every third kill
PAUSE = 1.0  # seconds at most after an update, of the others
WORDS = ["needle:distance=8,count=400", "-m", "gru,lstm", "--budget", f"steps={STEPS}", "--seeds", "2"]
WORDS += ["--jobs", "1", "--width", "16", "--batch_size", "4"]
WORDS += ["--set", "steps=16", "--set", "dropout=0.1", "--set", "evaluate_every=25"]
EQUAL = ("status", "numerators", "denominators", "by_position", "updates", "tokens", "sample", "value", "parameters")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    count = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        begun = time.perf_counter()
        if finish(folder / "undisturbed") != 1:
            sys.exit("the undisturbed comparison did not end at once")
        seconds = time.perf_counter() - begun
        rows = disturb(folder / "killed", count)
        ours, theirs = figures(folder / "undisturbed"), figures(folder / "killed")
    differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    print(f"{len(rows)} kills; {len(differing)} of {len(ours)} results differ in the end")
    facts = {"words": WORDS, "seed": SEED, "undisturbed_seconds": round(seconds, 1), "results": len(ours)}
    save_result("comparison-kills", rows, **facts, differing=differing)
    return 1 if differing else 0


def start(out: Path) -> subprocess.Popen[bytes]:
    """Give the command: it begins the comparison, or continues it."""
    words = [sys.executable, "-m", "recollect", "compare", *WORDS, "--out", str(out)]
    with (out.parent / f"{out.name}.err").open("wb") as errors:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)


def finish(out: Path, process: subprocess.Popen[bytes] | None = None) -> int:
    """Give the command until the comparison is whole; return how often it was given."""
    times = 0 if process else 1
    process = process or start(out)
    while process.wait() != 0:
        if times == 2:  # lost cells were run again: nothing is left that could fail
            sys.exit((out.parent / f"{out.name}.err").read_text(encoding="utf-8"))
        process, times = start(out), times + 1
    return times


def disturb(out: Path, count: int) -> list[dict[str, Any]]:
    """Run a comparison with so many kills; return of what each was, and how many updates were logged by then."""
    draw, rows = random.Random(SEED), []
    after = sorted(draw.sample(range(1, TRAININGS * STEPS - 50), count))
    process = start(out)
    for number, update in enumerate(after):
        process = wait(process, out, update if number % 3 else 0)
        time.sleep(draw.uniform(0, PAUSE if number % 3 else LATEST))
        if process.poll() is not None:
            process = again(process, out)
        rows.append({"victim": kill(process, draw.random() < 0.5), "updates": updates(out)})
        print(*rows[-1].values(), flush=True)
        if process.poll() is not None:
            process = start(out)
    finish(out, process)
    return rows


def wait(process: subprocess.Popen[bytes], out: Path, update: int) -> subprocess.Popen[bytes]:
    """Wait until so many updates are logged; where the parent ends before, with a lost cell, give the command again."""
    while updates(out) < update:
        if process.poll() is not None:
            process = again(process, out)
        time.sleep(0.05)
    return process


def again(process: subprocess.Popen[bytes], out: Path) -> subprocess.Popen[bytes]:
    """Give the command again after a lost cell."""
    if process.returncode == 0:
        sys.exit("the comparison ended before it was killed often enough; choose a larger budget of steps")
    return start(out)


def kill(parent: subprocess.Popen[bytes], wants_cell: bool) -> str:
    """Kill a cell where one runs and is wanted, else the parent; return what was killed."""
    cells = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    if wants_cell and cells:
        words = Path(f"/proc/{cells[0]}/cmdline").read_bytes().split(b"\0")
        os.kill(int(cells[0]), signal.SIGKILL)
        return " ".join(word.decode() for word in words[4:] if word)
    parent.kill()
    parent.wait()
    return "parent"


def updates(out: Path) -> int:
    """Return how many updates the logs of all runs hold."""
    return sum(path.read_bytes().count(b'"tokens"') for path in out.glob("runs/*/metrics.jsonl"))


def figures(out: Path) -> dict[str, Any]:
    """Return what must not depend on kills, by cell, and what the rules of the verdict give."""
    found: dict[str, Any] = {"judged": json.loads((out / "compare.json").read_text(encoding="utf-8"))["judged"]}
    for path in sorted((out / "cells").glob("*-seed?.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        curve = [[step, tokens, value] for step, tokens, _, value in cell["curve"]]
        found[path.stem] = {"curve": curve, **{name: cell[name] for name in EQUAL}}
    return found


if __name__ == "__main__":
    sys.exit(main())
