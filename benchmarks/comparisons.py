"""How long a comparison takes: a built-in of each of five kinds, each as one command on idle cores, with its verdict.

    python benchmarks/comparisons.py [--only python-docs] [--out FOLDER]

Three models with three seeds each, within a few seconds of training, as the command line starts them: as many trainings
at once as there are cores. The wall clock counts from the command to its end, import of torch, naive rows, costs and
page included. Rows are kept that are not measured again. With --out the comparisons' folders are kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import SMOKE, earlier, save_result

GOAL = 300.0  # seconds
COMMANDS = {
    "python-docs": "-m rnn,lstm,transformer --budget 8s",
    "reversed": "-m cho,bahdanau,transformer --budget 8s",
    "kindness": "-m bag-of-words,lstm,transformer --budget 4s",
    "verbs": "-m per-word,lstm,bilstm --budget 4s",
    "seasons:length=2000": "-m linear,gru,transformer --budget 4s",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(COMMANDS), action="append", help="May be given again.")
    parser.add_argument("--out", help="Where the comparisons' folders are kept.")
    options = parser.parse_args()
    rows = {row["data"]: row for row in earlier("comparisons")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(options.out or name)
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")  # nothing is prepared beforehand
        for data in options.only or COMMANDS:
            rows[data] = row = measure(data, folder / data)
            print(f"{data:20}{row['seconds']:6.1f} s  {row['verdict']['en']}", flush=True)
            save_result("comparisons", [rows[one] for one in COMMANDS if one in rows], goal=GOAL)
    return 0


def measure(data: str, out: Path) -> dict[str, Any]:
    """Run one comparison; return its time, its figures and its verdict."""
    words = [data, *shlex.split(COMMANDS[data]), *(["--budget", "steps=2", "--seeds", "1"] if SMOKE else [])]
    load, processor = os.getloadavg()[0], processor_seconds()  # the load is that of other programs
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "compare", *words, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{data}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    verdict = {language: sentences[0] for language, sentences in found["verdict"].items()}
    models = [
        {name: row[name] for name in ("name", "mean", "spread", "slopes")} | {"updates": row["figures"].get("updates")}
        for row in found["rows"]
    ]
    row = {
        "data": data,
        "task": found["plan"]["task"],
        "words": COMMANDS[data],
        "seconds": round(seconds, 1),
        "load_before": round(load, 1),
        "processor_seconds": round(processor_seconds() - processor, 1),
    }
    page = (out / "report.html").stat().st_size
    return row | {"measure": found["measure"]["measure"], "verdict": verdict, "models": models, "page_bytes": page}


def processor_seconds() -> float:
    """Return what all processes have computed that were started here and have ended, with those that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
