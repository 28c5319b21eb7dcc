"""What generators of examples share: random draws, distinct examples, and arguments.

Only `Random.random()` is guaranteed to return the same numbers in every version of Python, not `choice` or `shuffle`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from random import Random
from typing import TypeVar

from recollect.core.errors import nearest
from recollect.data.error import DataError

T = TypeVar("T")
E = TypeVar("E", bound=Hashable)


def below(rng: Random, bound: int) -> int:
    """Draw an integer, 0 ≤ n < bound."""
    return int(rng.random() * bound)


def pick(rng: Random, choices: Sequence[T]) -> T:
    """Draw one of the choices, uniformly."""
    return choices[below(rng, len(choices))]


def distinct(example: Callable[[Random], E], count: int, seed: int) -> Iterator[E]:
    """Yield `count` different examples; raise DataError if there are fewer."""
    check_size("count", count)
    rng, seen = Random(seed), set[E]()
    for _ in range(20 * count):
        made = example(rng)
        if made not in seen:
            seen.add(made)
            yield made
            if len(seen) == count:
                return
    raise DataError(
        f"only {len(seen)} different examples were found, expected {count}; make them longer or count smaller"
    )


def arguments(name: str, make: Callable[..., object], given: str) -> dict[str, int]:
    """Read `key=value,…` as integers for a function's parameters."""
    known, found = list(inspect.signature(make).parameters), dict[str, int]()
    for part in filter(None, given.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no arguments"
            raise DataError(f"{name}: no argument {key!r}{nearest(key, known)}; {takes}")
        try:
            found[key] = int(value)
        except ValueError as error:
            raise DataError(f"{name}: {key}={value!r} is not an integer; write {name}:{key}=10") from error
    return found


def check_size(name: str, size: int, most: int | None = None) -> None:
    """Raise DataError for a size below 1 or above `most`."""
    if size < 1 or (most is not None and size > most):
        raise DataError(f"{name}={size}: expected 1 {f'to {most}' if most else 'or more'}")
