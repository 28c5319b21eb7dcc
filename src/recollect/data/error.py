"""What is said when data cannot be used: what is wrong, where, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

Notify = Callable[[str], None]


class DataError(ValueError):
    """Data that cannot be used: says what is wrong, where, and the next thing to do."""


def silent(_: str) -> None:
    """Take a notice and do nothing: the default where nobody listens."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Give '; did you mean …?' for the known names closest to an unknown one, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
