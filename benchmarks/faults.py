"""Kill a training run at random moments: `resume` always works, and the result equals that of an undisturbed run.

    python benchmarks/faults.py

A small GRU with dropout is trained for a number of updates, once undisturbed and once killed (SIGKILL) twenty times: at
updates drawn over the whole run and a random moment after each, every second time as soon as a save is in progress.
Weights, optimiser, random numbers and carried memory must be equal at the end, bit for bit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from common import save_result
from recollect.training.checkpoint import newest_checkpoint

KILLS, UPDATES, EVERY, SEED = 20, 400, 5, 0
OPTIONS = ["--budget", f"{UPDATES}steps", "--batch", "4", "--steps", "16", "--seed", str(SEED)]
OPTIONS += ["--set", "dropout=0.1", "--set", f"evaluate_every={EVERY}"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, draw = Path(name), np.random.default_rng(SEED)
        os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        (folder / "text.txt").write_text("".join(draw.choice(list("abcdefgh "), 4000)), encoding="utf-8")
        peaceful, killed = Patient(folder, "peaceful"), Patient(folder, "killed")
        begun = time.perf_counter()
        peaceful.train_to_the_end()
        pause = EVERY * (time.perf_counter() - begun) / UPDATES  # about the time from one save to the next
        rows = [kill(killed, *moment) for moment in moments(draw, pause)]
        killed.train_to_the_end()
        ours, theirs = peaceful.result(), killed.result()
    differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    in_save = sum(row["in_save"] for row in rows)
    print(f"{KILLS} kills, {in_save} of them in a save, every resume worked; ", end="")
    print(f"{len(differing)} of {len(ours)} tensors differ in the end")
    facts = {"updates": UPDATES, "save_every": EVERY, "seed": SEED, "in_save": in_save, "tensors": len(ours)}
    save_result("faults", rows, **facts, bit_equal=not differing)
    sys.exit(f"not bit-equal: {', '.join(differing)}" if differing else 0)


def moments(draw: np.random.Generator, pause: float) -> list[tuple[int, float, bool]]:
    """Draw when to kill: after which update, how many seconds later, and whether to wait for a save."""
    updates = np.sort(draw.choice(np.arange(1, UPDATES - 2 * EVERY), KILLS, replace=False))
    return [(int(update), draw.uniform(0, pause), i % 2 == 1) for i, update in enumerate(updates)]


@dataclass
class Patient:
    """One run, in one process after the other."""

    folder: Path
    name: str
    is_begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.run = self.folder / self.name
        self.told, self.complaints = self.folder / f"{self.name}.jsonl", self.folder / f"{self.name}.txt"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the run, or resume it."""
        begin = ["train", str(self.folder / "text.txt"), "-m", "gru", "--out", str(self.run), *OPTIONS]
        words = ["resume", str(self.run)] if self.is_begun else begin
        self.is_begun = True
        command = [sys.executable, "-m", "recollect", *words, "--json"]
        with self.told.open("wb") as told, self.complaints.open("wb") as complaints:
            return subprocess.Popen(command, stdout=told, stderr=complaints)

    def train_to_the_end(self) -> None:
        """Start or resume the run, and wait for its end."""
        if self.start().wait() != 0:
            self.fail()

    def update(self) -> int:
        """Return the last update that this process has reported; -1 before its first."""
        whole_lines = self.told.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        return json.loads(whole_lines[-1])["step"] if whole_lines else -1

    def saves(self) -> set[tuple[str, int]]:
        """Return the saves that are in progress."""
        found = set()
        for path in (self.run / "checkpoints").glob("*.new"):
            with suppress(FileNotFoundError):  # finished meanwhile
                found.add((path.name, path.stat().st_mtime_ns))
        return found

    def result(self) -> dict[str, bytes]:
        """Return the result of a run: its tensors and those of its newest checkpoint."""
        last, _ = newest_checkpoint(self.run / "checkpoints")
        files = [*last.glob("*.safetensors"), self.run / "model.safetensors"]
        tensors = {(path, name): t for path in files for name, t in load_file(path).items()}
        return {f"{path.relative_to(self.run)} {name}": t.numpy().tobytes() for (path, name), t in tensors.items()}

    def fail(self) -> None:
        """Exit with the error output of the process."""
        sys.exit(f"{self.name}: a process ended unexpectedly:\n{self.complaints.read_text(encoding='utf-8')}")


def kill(patient: Patient, update: int, pause: float, waits_for_save: bool) -> dict[str, Any]:
    """Start the run and kill it at a given moment; return whether a save was in progress."""
    left = patient.saves()
    process = patient.start()
    wait(process, patient, lambda: patient.update() >= update)
    until = time.perf_counter() + pause
    wait(process, patient, lambda: time.perf_counter() >= until)
    if waits_for_save:
        wait(process, patient, lambda: bool(patient.saves() - left))
    process.send_signal(signal.SIGKILL)
    process.wait()
    row = {"update": patient.update(), "pause": pause, "in_save": bool(patient.saves() - left)}
    print(f"killed at update {row['update']:3}{', in a save' if row['in_save'] else ''}", flush=True)
    return row


def wait(process: subprocess.Popen[bytes], patient: Patient, is_so: Callable[[], bool]) -> None:
    while not is_so():
        if process.poll() is not None:
            patient.fail()
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
