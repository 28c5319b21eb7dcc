"""The audit of a budget, from a run's own log: rule 7 of docs/decisions/0024-comparisons.md.

The log must begin with the first update, have no gap, and end at the limit, beyond it by less than one update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from recollect.core.types import JsonMapping

LIMITS = {"max_steps": "step", "max_tokens": "tokens", "max_seconds": "seconds"}


def audit(rows: Sequence[JsonMapping], limits: Mapping[str, float]) -> str:
    """Return what is wrong with a log under limits, empty where nothing is; `limits` are settings such as max_steps."""
    updates = [row for row in rows if "tokens" in row]
    if not updates:
        return "no update is logged"
    steps = [int(row["step"]) for row in updates]
    if steps[0] != 1:
        return f"a head start: the log begins with update {steps[0]}"
    gap = next((a for a, b in pairwise(steps) if b != a + 1), None)
    if gap is not None:
        return f"a gap in the log after update {gap}"
    for name in ("tokens", "seconds"):
        values = [float(row[name]) for row in updates]
        moved = [b - a for a, b in pairwise(values)]
        if min(moved, default=0.0) < 0:
            return f"the {name} of the log run backwards"
        if name == "tokens" and moved and values[0] > 2 * max(moved):
            return f"a head start: {values[0]:,.0f} symbols before the second update"
    return _end(updates, limits)


def _end(updates: Sequence[JsonMapping], limits: Mapping[str, float]) -> str:
    """Return whether the log ends elsewhere than at its limit."""
    known = {name: value for name, value in limits.items() if name in LIMITS}
    reached = [name for name, limit in known.items() if float(updates[-1][LIMITS[name]]) >= limit]
    if known and not reached:
        name, limit = next(iter(known.items()))
        return f"ended early: {float(updates[-1][LIMITS[name]]):,.4g} of {limit:,.4g} {LIMITS[name]}"
    for name, limit in known.items():
        first = float(updates[0][LIMITS[name]])
        if len(updates) == 1 and first > limit:
            return f"the budget is too small for one update, which takes {first:,.4g} {LIMITS[name]}"
        if len(updates) > 1 and float(updates[-2][LIMITS[name]]) >= limit:
            beyond = float(updates[-1][LIMITS[name]])
            return f"trained beyond the budget: {beyond:,.4g} of {limit:,.4g} {LIMITS[name]}"
    return ""
