"""Time cut into chunks: all of it, none too short, and the next one's matmul runs beside a time loop."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, strategies as st

from recollect.accel.cuda.recurrent import chunks, plan as plans
from recollect.accel.cuda.recurrent.workspace import Extent

CHIP = plans.Chip()


def sizes(cuts):
    return [end - start for start, end in pairwise(cuts)]


def cut(batch, hidden, steps, many=1, direction="forward"):
    """Return cuts for matmuls beside the first plan that leaves a quarter of the chip, the plan, and what is idle."""
    offered = plans.offer(direction, "lstm", half=False, batch=batch, hidden=hidden, chip=CHIP)
    plan = next(p for p in offered if p.batch >= batch and 4 * many * p.grid <= 3 * CHIP.multiprocessors)
    extent, idle = Extent("lstm", steps, batch, hidden, hidden, torch.bfloat16), CHIP.multiprocessors - many * plan.grid
    return chunks.cut_for_products(plan, extent, many, many, CHIP), plan, idle


@given(st.integers(1, 5000), st.integers(0, 20))
def test_even_chunks(steps, most):
    found = sizes(chunks.cut_evenly(steps, most))
    assert sum(found) == steps
    assert len(found) <= max(1, most)
    assert len(set(found[:-1])) <= 1
    assert len(found) == 1 or found[0] >= chunks.SHORTEST


@given(st.sampled_from([1, 16, 64]), st.integers(16, 512), st.integers(1, 3000), st.integers(1, 2))
def test_products_keep_up_with_the_loop(batch, hidden, steps, many):
    cuts, plan, idle = cut(batch, hidden, steps, many)
    found = sizes(cuts)
    assert sum(found) == steps
    assert len(found) <= chunks.MOST_BESIDE
    assert len(found) == 1 or min(found[:-1]) >= chunks.SHORTEST
    product = many * 2 * batch * 4 * hidden * hidden / (idle * chunks.OPERATIONS)  # µs, of a step
    growth = max(1, chunks.QUICKEST_STEP[plan.through_l2] / product)
    assert all(after <= growth * before + found[0] for before, after in pairwise(found))


def test_where_much_is_idle_chunks_grow():
    assert cut(64, 512, 1024)[0] == (0, 256, 1024)
    assert cut(64, 512, 4096)[0] == (0, 512, 2068, 4096)
    assert cut(128, 512, 1024)[0] == (0, 128, 256, 384, 512, 640, 768, 896, 1024)
    assert cut(64, 512, 1024, direction="backward")[0] == (0, 256, 512, 768, 1024)


def test_small_products_are_one():
    assert cut(64, 64, 1024)[0] == (0, 1024)
    assert cut(1, 512, 1024)[0] == (0, 1024)
