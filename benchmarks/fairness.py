"""Does a verdict call equal models equal, and find a better one? With figures of real trainings, not simulated ones.

    python benchmarks/fairness.py

A GRU of width 32 is trained with 20 seeds on the documentation of Python, and one of width 64 with as many. Of these,
100 comparisons of three seeds against three others are drawn: two copies of one model, which must have no winner in
at least 95, and the narrow model against the wide one, which must win in at least 90. The rules are those of `compare`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import recollect as rc
from common import SMOKE, save_result
from recollect.comparison.items import items_of
from recollect.comparison.significance import Measured
from recollect.comparison.verdict import judge
from recollect.core.task import ItemScores

DATA, BUDGET, WIDTHS, SEEDS, OF_ONE, TIMES = "python-docs", "100steps", (32, 64), 20, 3, 100


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")
        seeds = 6 if SMOKE else SEEDS
        trained = {
            width: [train(width, seed, Path(name) / f"{width}-{seed}") for seed in range(seeds)] for width in WIDTHS
        }
    narrow, wide = (trained[width] for width in WIDTHS)
    draw = np.random.default_rng(0)
    cases = {
        "narrow against narrow": (narrow, narrow),
        "wide against wide": (wide, wide),
        "narrow against wide": (narrow, wide),
    }
    rows = [compared(name, one, other, draw) for name, (one, other) in cases.items()]
    for row in rows:
        print(row)
    values = {str(width): [round(items.value, 4) for items in found] for width, found in trained.items()}
    save_result("fairness", rows, data=DATA, budget=BUDGET, seeds=seeds, of_one=OF_ONE, values=values)
    equal = all(row["no winner"] >= 0.95 * TIMES for row in rows[:2])
    return 0 if equal and rows[2]["second"] >= 0.9 * TIMES else 1


def train(width: int, seed: int, out: Path) -> ItemScores:
    """Return the figures of one training on the items of the test part."""
    budget = "2steps" if SMOKE else BUDGET
    run = rc.train(DATA, model="gru", budget=budget, seed=seed, width=width, out=out, device="cpu")
    return items_of(run.task, run.model, run.dataset())


def compared(name: str, one: list[ItemScores], other: list[ItemScores], draw: np.random.Generator) -> dict[str, Any]:
    """Draw comparisons, of different trainings on both sides; return how often which side won."""
    winners: Counter[str] = Counter()
    for _ in range(TIMES):
        first = draw.permutation(len(one))
        second = first[OF_ONE:] if one is other else draw.permutation(len(other))
        models = [
            Measured(side, [found[i] for i in chosen[:OF_ONE]])
            for side, found, chosen in (("first", one, first), ("second", other, second))
        ]
        winners[judge(models, lower_is_better=True).winner or "no winner"] += 1
    return {"case": name, **{side: winners[side] for side in ("no winner", "first", "second")}}


if __name__ == "__main__":
    sys.exit(main())
