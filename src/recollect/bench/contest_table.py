"""All contests: rows of measurements, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch

from recollect.bench.contests import Contest, ContestShape, layer_contests
from recollect.bench.floor import Floor, measure_floor
from recollect.bench.loops import generation_contests
from recollect.bench.timing import BOTH, PASSES, clock_of, time_steadily
from recollect.core.machine import record
from recollect.core.types import JsonObject as Row

LIMIT = 0.25  # a contest with a wider spread is timed again
ATTEMPTS = 2  # at most
FEWEST = 5  # rounds of an attempt
SECONDS = 2.0  # of an attempt, beyond which it has fewer rounds
COLUMNS = "{:14}{:20}{:>5}  {:36}{:>9}{:>9}{:>8}{:>8}{:>7}{:>9}"
HEAD = ("layer", "task", "H", "beside", "ours ms", "ms", "faster", "spread", "floor", "differ")


@dataclass(frozen=True)
class Bench:
    """What is timed: on the GPU or the CPU; `quick` has small sizes and few rounds, to try the command."""

    on_gpu: bool = False
    quick: bool = False

    @property
    def device(self) -> torch.device:
        """The device that is timed."""
        return torch.device("cuda" if self.on_gpu else "cpu")

    @property
    def rounds(self) -> int:
        """Rounds of each attempt, at most."""
        return 3 if self.quick else 15

    def contests(self) -> Iterator[Contest]:
        """Return the contests, each built when it is reached."""
        if self.on_gpu:
            widths, batch, steps = ((64,), 8, 32) if self.quick else ((256, 512, 1024), 64, 1024)
            shapes = [ContestShape(batch, steps, width, torch.bfloat16, "cuda") for width in widths]
            return layer_contests(shapes, PASSES)
        shape, tokens = (ContestShape(4, 16, 32), 20) if self.quick else (ContestShape(32, 128, 256), 128)
        generation = generation_contests(shape.hidden, tokens, has_others=not self.quick)
        return chain(layer_contests([shape], (BOTH,)), generation)


def run_bench(bench: Bench, command: str, show: Callable[[Row], None]) -> Row:
    """Time everything; call `show` with every new row, and return all in the format of benchmarks/results."""
    if bench.on_gpu and not torch.cuda.is_available():
        raise ValueError("--gpu: torch finds no GPU here; for the reason see: recollect doctor. Try: recollect bench")
    floor = measure_floor(bench.device, torch.bfloat16 if bench.on_gpu else torch.float32)
    rows: list[Row] = []
    for contest in bench.contests():
        for row in measure(contest, floor, bench.rounds):
            show(row)
            rows.append(row)
    setting = {"rounds": bench.rounds, "steady": LIMIT, "most_attempts": ATTEMPTS, "quick": bench.quick}
    setting |= {"threads": torch.get_num_threads(), "floor_operations_per_s": float(f"{floor.operations:.4g}")}
    return record("bench", rows, command, setting=setting)


def measure(contest: Contest, floor: Floor, rounds: int) -> list[Row]:
    """Check that all contenders compute the same, then time them interleaved; return a row for each peer."""
    ours, *peers = contest.contenders
    assert ours == "ours"
    result = contest.results[ours]()
    differences = {peer: contest.differ(result, contest.results[peer](), contest.tolerance) for peer in peers}
    clock = clock_of(floor.device)
    turn = sum(clock(work) for work in contest.contenders.values())
    rounds = min(rounds, max(FEWEST, int(SECONDS / turn)))
    steady = time_steadily(contest.contenders, rounds, limit=LIMIT, attempts=ATTEMPTS, warmup=1, clock=clock)
    fastest = floor.seconds(contest)
    return [
        {
            "layer": contest.name,
            "task": contest.task,
            **contest.setting,
            "against": peer,
            "ours_ms": round(steady.medians[ours] * 1e3, 3),
            "theirs_ms": round(steady.medians[peer] * 1e3, 3),
            "times_faster": round(steady.medians[peer] / steady.medians[ours], 3),
            "spread": round(steady.spread, 3),
            "rounds": rounds,
            "attempts": steady.attempts,
            "share_of_floor": round(fastest / steady.medians[ours], 3),
            "largest_difference": float(f"{difference:.1e}"),
            "tolerance": contest.tolerance,
        }
        for peer, difference in differences.items()
    ]


# ---- the table ---------------------------------------------------------------------------------------


def head() -> str:
    """Return the heading of the table."""
    return COLUMNS.format(*HEAD)


def line(row: Row) -> str:
    """Return a row as a line of the table."""
    times = [f"{row['ours_ms']:.2f}", f"{row['theirs_ms']:.2f}", f"{row['times_faster']:.2f}x"]
    shares = [f"{row['spread']:.0%}", f"{row['share_of_floor']:.0%}", f"{row['largest_difference']:.0e}"]
    return COLUMNS.format(row["layer"], row["task"], row["hidden"], row["against"], *times, *shares)


def legend(result: Row) -> str:
    """Return the definitions of the columns, and the machine."""
    setting = result["setting"]
    machine = result["machine"]
    rows = result["rows"]
    shape = rows[0]
    generation = next((row for row in rows if row["task"] == "generation"), None)
    also = f"; generation: {generation['steps']} tokens at batch 1" if generation else ""
    fewest = min(row["rounds"] for row in rows)
    tolerances = " and ".join(f"{limit:g}" for limit in sorted({row["tolerance"] for row in rows}))
    where = "; ".join(str(machine[name]) for name in ("gpu", "cpu") if name in machine)
    peak = f"{setting['floor_operations_per_s'] / 1e12:.3g} TFLOP/s"
    return (
        f"batch {shape['batch']}, {shape['steps']} steps, {shape['dtype']}{also}. Medians of {fewest} to "
        f"{setting['rounds']} interleaved rounds; faster: their time / ours; spread: the interquartile range over the "
        f"median; floor: the least time for the operations (at {peak}, measured here) and bytes, as a share of ours; "
        f"differ: the largest difference, at most {tolerances}. {where}; {setting['threads']} threads."
    )
