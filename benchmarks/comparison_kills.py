"""Kill a comparison and its cells at random moments: the finished comparison equals the undisturbed one, cell for cell.

    python benchmarks/comparison_kills.py [--kills 10]

Three models with two seeds each, under a budget of steps: once undisturbed, once with SIGKILL at random moments, of the
parent or of a cell that is running, drawn as well. Whenever the parent has ended without a whole comparison, the same
command is given again. What does not measure time or memory must be equal: every item's figure, the curves, updates and
symbols, the samples, and what the rules of the verdict give.
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

SEED = 0
FIRST, LAST = 1.0, 20.0  # seconds from one kill to the next, drawn between these; starting takes 4 to 8 of them
WORDS = ["needle:distance=8,count=400", "-m", "gru,lstm,transformer", "--budget", "steps=1000", "--seeds", "2"]
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
    """Run a comparison with so many kills; return when each was, of what, and how many updates were logged by then."""
    draw, rows = random.Random(SEED), []
    process = start(out)
    while len(rows) < count:
        pause = draw.uniform(FIRST, LAST)
        try:
            if process.wait(pause) == 0:
                sys.exit(f"the comparison ended after {len(rows)} kills; choose a larger budget of steps")
            process = start(out)  # a killed cell was lost, and the rest was finished
            continue
        except subprocess.TimeoutExpired:
            pass
        row = {"pause": round(pause, 2), "victim": kill(process, draw.random() < 0.5), "updates": updates(out)}
        rows.append(row)
        print(*row.values(), flush=True)
        if process.poll() is not None:
            process = start(out)
    finish(out, process)
    return rows


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
