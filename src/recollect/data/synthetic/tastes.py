"""Ratings of films by people with tastes, made without a download.

A film has features, how much romance and how much action; a person likes or dislikes each. A rating is 3 plus the dot
product of both plus noise: where the signs of a feature agree, the rating rises. Arguments follow the name:
`tastes:users=200,films=100`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from recollect.data.error import DataError
from recollect.data.synthetic.draw import arguments, below, check_size

NAME = "tastes"
GENRES = ("romance", "action")
MIDDLE = 3.0
NOISE = 0.3  # the standard deviation of a rating's noise


class Tastes(NamedTuple):
    """Users and films, each with a number for every genre."""

    users: list[tuple[float, ...]]
    films: list[tuple[float, ...]]


def tastes(users: int = 300, films: int = 200, each: int = 40, seed: int = 0) -> Iterator[tuple[str, str, float]]:
    """Yield user, film and rating: every user rates `each` different films."""
    made = hidden_tastes(users, films, seed)
    check_size("each", each, films)
    rng = Random(seed + 1)
    for user, likes in enumerate(made.users):
        for film in _several(rng, films, each):
            match = sum(like * has for like, has in zip(likes, made.films[film], strict=True))
            yield f"user-{user}", f"film-{film}", round(MIDDLE + match + NOISE * _normal(rng), 4)


def hidden_tastes(users: int, films: int, seed: int) -> Tastes:
    """Return what the ratings are made of, for comparison with what a model has learned."""
    check_size("users", users)
    check_size("films", films)
    rng = Random(seed)
    rows = [tuple(_normal(rng) for _ in GENRES) for _ in range(users + films)]
    return Tastes(rows[:users], rows[users:])


def is_tastes(data: str) -> bool:
    """Return whether DATA names this built-in, with or without arguments."""
    return data.partition(":")[0] == NAME


def generated_ratings(data: str) -> Iterator[tuple[str, str, float]]:
    """Yield the ratings of `tastes` or `tastes:key=value,…`."""
    name, _, given = data.partition(":")
    if name != NAME:
        raise DataError(f"{name}: no such built-in; expected {NAME}")
    return tastes(**arguments(name, tastes, given))


def _normal(rng: Random) -> float:
    """Draw a number of mean 0 and variance 1: twelve uniform ones, the same on every machine."""
    return sum(rng.random() for _ in range(12)) - 6


def _several(rng: Random, bound: int, count: int) -> list[int]:
    """Draw `count` different integers below a bound."""
    order = list(range(bound))
    for place in range(count):
        other = place + below(rng, bound - place)
        order[place], order[other] = order[other], order[place]
    return order[:count]
