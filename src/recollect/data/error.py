"""What is said when data cannot be used: what is wrong, where, and what to type next."""

from __future__ import annotations

from collections.abc import Callable

Notify = Callable[[str], None]


class DataError(ValueError):
    """Data that cannot be used: says what is wrong, where, and the next thing to do."""


def silent(_: str) -> None:
    """Take a notice and do nothing: the default where nobody listens."""
