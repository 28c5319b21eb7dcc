"""The budget of a training as it is typed. torch is not imported: a mistake is reported at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from recollect.core.settings import SettingError

DEFAULT = "60s"
SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}
BUDGET_UNITS = {
    "seconds": ("", "s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hour", "hours"),
    "steps": ("step", "steps", "updates"),
    "tokens": ("tok", "token", "tokens"),
    "epochs": ("epoch", "epochs"),
}


def with_budget(text: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the training with a budget; raise a SettingError where both give the same limit.

    The default budget gives way to a setting.
    """
    limits = parse_budget(text)
    for name in limits.keys() & settings.keys():
        if text != DEFAULT:
            raise SettingError(f"--budget: got {text} with {name}={settings[name]}; leave one of them out")
    return {**limits, **settings}


def parse_budget(text: str) -> dict[str, float]:
    """Return 30s, 5m, 1h, 2000steps, 1e6tokens or 3epochs as settings of the training; a number alone is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = next((name for name, words in BUDGET_UNITS.items() if match and match[2] in words), None)
    if match is None or unit is None or not 0 < float(match[1]) < math.inf:
        raise SettingError(
            f"--budget: got {text!r}, expected 30s, 5m, 1h, 2000steps, 1e6tokens or 3epochs, more than 0"
        )
    number = float(match[1])
    if unit in SECONDS:
        return {"max_seconds": number * SECONDS[unit]}
    return {"max_epochs": number} if unit == "epochs" else {f"max_{unit}": math.ceil(number)}
