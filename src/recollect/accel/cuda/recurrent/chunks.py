"""Time cut into pieces, so that something runs beside a walk: another walk, or the products of another piece.

A piece costs a launch, and the first one's product is waited for. Beside a walk forward the next product is made on the
multiprocessors that the walk leaves free. The less of its time that takes, the longer may the next piece be, and the
fewer there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from recollect.accel.cuda.recurrent.plan import Chip, KernelPlan
from recollect.accel.cuda.recurrent.workspace import Extent

Cuts = tuple[int, ...]  # where pieces begin, and where the last one ends

SHORTEST, MOST = 64, 12  # steps of a piece, and pieces; a launch costs as much as some steps
MOST_BESIDE = 8  # pieces for products alone
MOST_TAKEN = 3 / 4  # of a chip by walks, for products to be made beside them
WORTH = {"forward": 30_000_000_000, "backward": 100_000_000_000}  # operations; 50 and 150 µs of a whole chip
OPERATIONS = 5_000_000  # of a multiprocessor in a µs, in large products
QUICKEST_STEP = {False: 1.2, True: 2.4}  # µs, of a walk inside clusters and through the cache
MOST_GROWTH = 4.0  # of a piece beside the one before it


def cut_evenly(steps: int, most: int) -> Cuts:
    """Cut into at most so many pieces, none of them too short."""
    size = steps if most < 2 or steps < 2 * SHORTEST else max(SHORTEST, -(-steps // most))
    return (*range(0, steps, size), steps)


def cut_for_products(plan: KernelPlan, extent: Extent, layers: int, at_once: int, chip: Chip) -> Cuts:
    """Cut for products that are made beside walks, of which so many run at once: where these leave room for them."""
    idle = chip.multiprocessors - at_once * plan.grid
    if idle < (1 - MOST_TAKEN) * chip.multiprocessors:
        return 0, extent.steps
    operations = _operations(plan, extent)
    even = cut_evenly(extent.steps, min(MOST_BESIDE, operations // WORTH[plan.direction]))
    if plan.direction == "backward":
        return even
    beside = layers * operations / extent.steps / (idle * OPERATIONS)  # µs, of a step's products
    growth = min(MOST_GROWTH, QUICKEST_STEP[plan.through_l2] / beside)
    return _growing(extent.steps, even[1], growth) if growth > 1 else even


def _growing(steps: int, first: int, growth: float) -> Cuts:
    """Let pieces become longer and longer; what would be left for a shorter one belongs to the last."""
    cuts, size = [0], first
    while steps - cuts[-1] >= size + first:
        cuts.append(cuts[-1] + size)
        size = int(size * growth)
    return (*cuts, steps)


def _operations(plan: KernelPlan, extent: Extent) -> int:
    """Count those of a layer's products: W_ih x, and on the way back dx, dW_ih and dW_hh."""
    deep = extent.width if plan.direction == "forward" else 2 * extent.width + extent.units
    return 2 * extent.batch * extent.steps * extent.columns * deep


def spans(cuts: Cuts) -> Iterator[tuple[int, int]]:
    """Return where each piece begins, and its steps."""
    return ((start, end - start) for start, end in pairwise(cuts))
