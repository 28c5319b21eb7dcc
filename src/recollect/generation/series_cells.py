"""The cells of a table of series: text, and numbers with as many digits as tell something."""

from __future__ import annotations

import math

LEAST, MOST = 6, 15  # significant digits


def cell(text: str) -> str:
    """Return text as a cell of a .csv."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def number(value: float, spread: float) -> str:
    """Return a number to a hundredth of `spread`, what it varies by: 10000012.3 where that is 10; six digits at least.

    >>> number(10_000_012.345678, 10.0), number(1 / 3, 1.0)
    ('10000012.3', '0.333333')
    """
    left = _place(value)
    right = _place(spread / 100) if spread > 0 else min(left, 0)
    return f"{value:.{min(max(left - right + 1, LEAST), MOST)}g}"


def _place(value: float) -> int:
    """Return the power of ten of a number's first digit."""
    return math.floor(math.log10(abs(value))) if value else 0
