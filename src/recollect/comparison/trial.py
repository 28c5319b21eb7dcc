"""A layer of one's own is tried in a process of its own first: where it crashes there, it is left out, and no more.

    python -m recollect.comparison.trial MODEL < plan.json

The laws are checked. What raises is found again, and told, by the comparison itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from recollect.comparison.entrants import cell_config
from recollect.comparison.plan import Plan, short_name
from recollect.comparison.processes import signal_named
from recollect.core.errors import is_own


def crashes(plan: Plan, folder: Path) -> dict[str, str]:
    """Return the models whose process is killed when they are tried, and how; what was entered has been tried."""
    new = [
        model
        for model in plan.models
        if is_own(model) and not any(folder.glob(f"cells/{short_name(model)}-*.told.json"))
    ]
    codes = {model: _try(plan, model) for model in new}
    return {
        model: f"{short_name(model)}: crashes when it is tried, by {signal_named(-code)}"
        for model, code in codes.items()
        if code < 0
    }


def _try(plan: Plan, model: str) -> int:
    words = [sys.executable, "-m", "recollect.comparison.trial", model]
    saved = json.dumps(plan.as_json()).encode()
    return subprocess.run(
        words, input=saved, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode


def main() -> None:
    """Try the model that is named, as a comparison does."""
    plan = Plan.from_json(json.load(sys.stdin))
    try:
        cell_config(plan, sys.argv[1], 0, {})
    except (ValueError, AssertionError, MemoryError, RuntimeError):
        return


if __name__ == "__main__":
    main()
