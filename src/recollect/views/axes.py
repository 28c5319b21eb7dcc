"""Axes that hold given values, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recollect.views.bilingual import Bilingual
from recollect.views.line_chart import Axis

FEWEST = 2  # ticks


def axis(title: Bilingual, values: Sequence[float], is_log: bool = False, is_tight: bool = False) -> Axis:
    """Return an axis that holds some values, with its ticks; a tight one ends where the values do."""
    if is_tight:
        return _tight(title, values, is_log)
    if is_log:
        values = [value for value in values if value > 0]
        low = 10.0 ** math.floor(math.log10(min(values)))
        high = 10.0 ** math.ceil(math.log10(max(values)) + 1e-9)
        powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
        every = max(1, math.ceil(len(powers) / 7))
        return Axis(title, low, high, [(10.0**power, f"{10.0**power:g}") for power in powers[::every]], True)
    least, most = min(values), max(values)
    step = _step(max(most - least, abs(most) * 1e-3, 1e-12))
    low, high = math.floor(least / step) * step, math.ceil(most / step - 1e-9) * step
    high = high if high > low else low + step
    count = round((high - low) / step)
    ticks = [(low + i * step, f"{low + i * step:.6g}") for i in range(count + 1)]
    return Axis(title, min(low, least), max(high, most), ticks)


def _step(width: float) -> float:
    """Return 1, 2 or 5 times a power of ten: four to eight of it make the width."""
    power: float = 10.0 ** math.floor(math.log10(width / 4))
    return next(power * factor for factor in (1, 2, 5, 10) if width / (power * factor) <= 8)


def _tight(title: Bilingual, values: Sequence[float], is_log: bool) -> Axis:
    values = [value for value in values if value > 0 or not is_log]
    loose = axis(title, values, is_log)
    low, high = min(values), max(values)
    if low == high:
        return loose
    ticks = [tick for tick in loose.ticks if low <= tick[0] <= high]
    if is_log and len(ticks) < FEWEST:
        ticks = [(value, f"{value:g}") for value in sorted(set(values))]
    return Axis(title, low, high, ticks, is_log)
