"""Time cut into chunks, so that something runs beside a time loop: another loop, or the matmuls of another chunk.

A chunk costs a launch, and the first one's matmul is waited for. Beside a forward loop the next matmul runs on the
multiprocessors that the loop leaves idle. The less of its time that takes, the longer the next chunk may be, and the
fewer there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from recollect.accel.cuda.recurrent.plan import Chip, KernelPlan
from recollect.accel.cuda.recurrent.workspace import Extent

Cuts = tuple[int, ...]  # where chunks begin, and where the last one ends

SHORTEST, MOST = 64, 12  # at least so many steps in a chunk, at most so many chunks: a launch costs some steps
MOST_BESIDE = 8  # chunks where only matmuls run beside the loop
MOST_TAKEN = 3 / 4  # of the multiprocessors used by loops, if matmuls are to run beside them
WORTH = {
    "forward": 30_000_000_000,
    "backward": 100_000_000_000,
}  # operations of a chunk, at least: 50 and 150 µs of a chip
OPERATIONS = 5_000_000  # of a multiprocessor in a µs, in large matmuls
QUICKEST_STEP = {False: 1.2, True: 2.4}  # µs, of a loop inside clusters and through the cache
MOST_GROWTH = 4.0  # length of a chunk over that of the one before it


def cut_evenly(steps: int, most: int) -> Cuts:
    """Return even cuts: at most so many chunks, none of them too short."""
    size = steps if most < 2 or steps < 2 * SHORTEST else max(SHORTEST, -(-steps // most))
    return (*range(0, steps, size), steps)


def cut_for_products(plan: KernelPlan, extent: Extent, layers: int, at_once: int, chip: Chip) -> Cuts:
    """Return cuts for matmuls beside `at_once` concurrent loops, where these leave enough multiprocessors idle."""
    idle = chip.multiprocessors - at_once * plan.grid
    if idle < (1 - MOST_TAKEN) * chip.multiprocessors:
        return 0, extent.steps
    # Of a layer's large matmuls: W_ih x; in backward dx, dW_ih and dW_hh.
    depth = extent.width if plan.direction == "forward" else 2 * extent.width + extent.units
    operations = 2 * extent.batch * extent.steps * extent.columns * depth
    even = cut_evenly(extent.steps, min(MOST_BESIDE, operations // WORTH[plan.direction]))
    if plan.direction == "backward":
        return even
    beside = layers * operations / extent.steps / (idle * OPERATIONS)  # µs, of a step's matmuls
    growth = min(MOST_GROWTH, QUICKEST_STEP[plan.through_l2] / beside)
    return _growing(extent.steps, even[1], growth) if growth > 1 else even


def _growing(steps: int, first: int, growth: float) -> Cuts:
    """Return cuts into longer and longer chunks; a remainder too short for one belongs to the last."""
    cuts, size = [0], first
    while steps - cuts[-1] >= size + first:
        cuts.append(cuts[-1] + size)
        size = int(size * growth)
    return (*cuts, steps)


def spans(cuts: Cuts) -> Iterator[tuple[int, int]]:
    """Return where each chunk begins, and how many steps it has."""
    return ((start, end - start) for start, end in pairwise(cuts))
