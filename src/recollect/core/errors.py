"""Errors about what a user gave, and the words in them. torch is not imported: a mistake is reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

NEARLY = 0.9  # of the likeness of the nearest name: what is less alike is not suggested


class ContractError(ValueError):
    """An argument that a layer cannot read: the message names it, what it got and what was expected.

    >>> rc.GRU(4, 8)(torch.zeros(2, 5, 3))
    Traceback (most recent call last):
    recollect.core.errors.ContractError: x: got ...
    """

    def __init__(self, argument: str, got: object, expected: object) -> None:
        super().__init__(f"{argument}: got {got}, expected {expected}")
        self.argument = argument


def check_choice(what: str, got: str, choices: Sequence[str]) -> None:
    """Raise a ValueError for a word that is not among the choices."""
    if got not in choices:
        raise ValueError(f"{what}: got {got!r}, expected one of {', '.join(choices)}{nearest(got, choices)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return '; did you mean …?' with the known names closest to an unknown one, or an empty string.

    Leading dashes are part of the answer only: `modle` is near to `--model`.
    """
    known = {one.lstrip("-"): one for one in names}
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    best = [one for one in close if likeness(name, one) > NEARLY * likeness(name, close[0])]
    return f"; did you mean {' or '.join(known[one] for one in best)}?" if close else ""


def likeness(one: str, other: str) -> float:
    """Return how alike two names are, from 0 to 1."""
    return difflib.SequenceMatcher(None, other, one).ratio()


def is_own(name: str) -> bool:
    """Return whether a name is that of user code: path/to/file.py:Name, or module:Name."""
    return ":" in name
