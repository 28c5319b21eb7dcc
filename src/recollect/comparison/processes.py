"""Cells as processes of their own: a crash, a kill or too little memory loses one cell, and no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, Protocol, TypeAlias

from recollect.core.serialize import write_file
from recollect.core.threads import separate_cores
from recollect.core.types import JsonMapping, JsonObject

State: TypeAlias = Literal["waiting", "running", "done", "diverged", "out of memory", "killed", "failed"]
FINAL = ("done", "diverged", "out of memory")  # what is not run again when a comparison is continued
LOOK = 0.05  # seconds between two looks at the processes


class Started(Protocol):
    """A cell that was started: a process here, or on another machine."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """What the cell reads: it ends when this is closed."""

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""

    def wait(self) -> int:
        """Return the exit code when it has ended."""

    def kill(self) -> None:
        """End it now."""


@dataclass
class Slot:
    """Where a cell may run: a core of its own, or a device."""

    core: int | None = None
    device: str | None = None
    process: Started | None = None
    name: str = ""
    is_lost: bool = False  # with its machine

    def start(self, folder: Path, name: str, extra: str) -> None:
        """Start the process of a cell."""
        words = [sys.executable, "-m", "recollect.comparison.cell", str(folder), name, *([extra] if extra else [])]
        with (folder / "cells" / f"{name}.err").open("wb") as errors:
            # The cell reads its standard input, and ends when this process is gone.
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env=cell_environment(self)
            )
        self.process, self.name = process, name
        if self.core is not None:
            os.sched_setaffinity(process.pid, {self.core})


@dataclass
class CellProgress:
    """How far the cells are, for whoever shows it."""

    folder: Path
    states: dict[str, State] = field(default_factory=dict)

    def last_row(self, name: str) -> JsonObject:
        """Return the last complete row of a running cell's log, with its last validation figure."""
        path = self.folder / "runs" / name / "metrics.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 20_000))
                lines = file.read().split(b"\n")[1:-1]
        except OSError:
            return {}
        found: JsonObject = {}
        for line in lines:
            try:
                found |= json.loads(line)
            except ValueError:
                continue
        return found


def slots_for(device: str, jobs: int | None, is_by_seconds: bool) -> list[Slot]:
    """Return where cells may run: a core each on a CPU, one at a time on each GPU.

    With a budget of seconds a cell keeps its core to itself, so that none disturbs another's clock.
    """
    import torch

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        names = [device] if ":" in device else [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        return [Slot(device=name) for name in names[:jobs]]
    cores = separate_cores()[:jobs]
    can_pin = is_by_seconds and hasattr(os, "sched_setaffinity")
    return [Slot(core=core if can_pin else None) for core in cores]


def run_cells(
    folder: Path, names: Sequence[str], slots: Sequence[Slot], look: Callable[[CellProgress], None], extra: str = ""
) -> CellProgress:
    """Run the cells of these names, as many at once as there are slots; return how they ended."""
    progress = CellProgress(folder, dict.fromkeys(names, "waiting"))
    waiting = list(names)
    try:
        while any(slot.process or (waiting and not slot.is_lost) for slot in slots):
            for slot in slots:
                if slot.process is not None and slot.process.poll() is not None:
                    progress.states[slot.name] = ended(folder, slot, extra)
                if slot.process is None and waiting and not slot.is_lost:
                    slot.start(folder, waiting.pop(0), extra)
                    progress.states[slot.name] = "running"
            look(progress)
            time.sleep(LOOK)
    finally:
        for slot in slots:
            _stop(slot)
    look(progress)
    return progress


def cell_environment(slot: Slot) -> dict[str, str]:
    """Return the environment of a cell: one thread on a core, or a single GPU, by its number among those visible."""
    if slot.device is None:
        return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    number = slot.device.rpartition(":")[2]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {**os.environ, "CUDA_VISIBLE_DEVICES": visible.split(",")[int(number)] if visible else number}


def _stop(slot: Slot) -> None:
    """End a process that is still running: its run is resumed later."""
    if slot.process is not None:
        slot.process.kill()
        slot.process.wait()
        if slot.process.stdin is not None:
            slot.process.stdin.close()
        slot.process = None


def ended(folder: Path, slot: Slot, extra: str = "") -> State:
    """Return how a cell ended; of one that left no result, write down why."""
    assert slot.process is not None
    code = slot.process.wait()
    if slot.process.stdin is not None:
        slot.process.stdin.close()
    slot.process = None
    path = folder / "cells" / f"{slot.name}{f'.{extra}' if extra else ''}.json"
    errors = (folder / "cells" / f"{slot.name}.err").read_text(encoding="utf-8", errors="replace").strip()
    if extra:
        return "done" if path.is_file() else "failed"
    if not path.is_file():
        status: State = "killed" if code < 0 else "failed"
        problem = f"by {signal_named(-code)}" if code < 0 else (errors.splitlines() or [f"exit code {code}"])[-1]
        write_file(path, json.dumps({"status": status, "problem": problem}).encode() + b"\n")
    return state_of(read_cell(folder, slot.name))


def signal_named(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_cell(folder: Path, name: str) -> JsonObject:
    """Return what is written of a cell; an empty object where nothing is."""
    try:
        found: JsonObject = json.loads((folder / "cells" / f"{name}.json").read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def state_of(cell: JsonMapping) -> State:
    """Return the state of a cell by what is written of it."""
    status: State = cell.get("status", "waiting")
    return status


def forget_unfinished(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the cells that are still to be run: their failures are forgotten, and their runs resumed."""
    left = []
    for name in names:
        if state_of(read_cell(folder, name)) not in FINAL:
            (folder / "cells" / f"{name}.json").unlink(missing_ok=True)
            left.append(name)
    return left
