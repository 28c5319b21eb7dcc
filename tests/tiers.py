"""The tiers of the tests: `make test` runs the quick ones, `make test-all` every one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(quick: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases for `parametrize`, all but the first `quick` marked slow."""
    return [case if place < quick else _slow(case) for place, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
