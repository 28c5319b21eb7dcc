"""Pairs that need no download: generators of a source and its target.

The same arguments give the same pairs on every machine, and no source occurs twice, so that no held-out pair is in the
training part. Arguments follow the name: `numbers:count=20000,seed=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from recollect.core.errors import nearest
from recollect.data.error import DataError
from recollect.data.synthetic.draw import arguments, below, check_size, distinct, pick
from recollect.data.synthetic.grammar import grammar
from recollect.data.synthetic.number_words import MOST, chinese_words, english_words

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)

Lines = tuple[str, str]  # a source and its target


def numbers(most: int = MOST, chinese: int = 0, count: int = 20_000, seed: int = 0) -> Iterator[Lines]:
    """Yield `forty-two thousand seven` and `42007`; with chinese=1 `四万二千零七`.

    Every number of digits is equally likely.
    """
    check_size("most", most, MOST)
    words = chinese_words if chinese else english_words

    def example(rng: Random) -> Lines:
        digits = 1 + below(rng, len(str(most)))
        least, bound = (0 if digits == 1 else 10 ** (digits - 1)), min(10**digits, most + 1)
        number = least + below(rng, bound - least)
        return words(number), str(number)

    return distinct(example, count, seed)


def dates(count: int = 20_000, seed: int = 0) -> Iterator[Lines]:
    """Yield `the 3rd of March, 2021` and `2021-03-03`: thirteen formats of a day from 1900 to 2099."""

    def example(rng: Random) -> Lines:
        day = FIRST_DAY + timedelta(days=below(rng, (LAST_DAY - FIRST_DAY).days + 1))
        return pick(rng, DATE_FORMATS)(day), day.isoformat()

    return distinct(example, count, seed)


def reversed_letters(length: int = 16, symbols: int = 26, count: int = 20_000, seed: int = 0) -> Iterator[Lines]:
    """Yield `gate` and `etag`: `length`/2 to `length` letters, and the same in reverse."""
    check_size("length", length)
    check_size("symbols", symbols, len(LETTERS))
    least = (length + 1) // 2

    def example(rng: Random) -> Lines:
        size = least + below(rng, length - least + 1)
        word = "".join(pick(rng, LETTERS[:symbols]) for _ in range(size))
        return word, word[::-1]

    return distinct(example, count, seed)


def _month(day: date) -> str:
    return MONTHS[day.month - 1]


def _weekday(day: date) -> str:
    return DAYS[day.weekday()]


def _ordinal(day: date) -> str:
    """Return 1st, 2nd, 3rd, 4th, … 11th, … 21st."""
    ending = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return f"{day.day}{ending}"


# The separator decides on the order of day and month: with a dot the day is first, with a slash the month.
DATE_FORMATS: tuple[Callable[[date], str], ...] = (
    lambda d: f"{d.day} {_month(d)} {d.year}",
    lambda d: f"{_month(d)} {d.day}, {d.year}",
    lambda d: f"{d.day} {_month(d)[:3]} {d.year}",
    lambda d: f"{d.day:02}-{_month(d)[:3].upper()}-{d.year}",
    lambda d: f"{_weekday(d)}, {_month(d)} {_ordinal(d)}, {d.year}",
    lambda d: f"{_weekday(d)[:3]} {d.day} {_month(d)[:3]} {d.year}",
    lambda d: f"the {_ordinal(d)} of {_month(d)}, {d.year}",
    lambda d: f"{d.day}.{d.month}.{d.year}",
    lambda d: f"{d.month}/{d.day}/{d.year}",
    lambda d: f"{d.year}/{d.month}/{d.day}",
    lambda d: f"{d.year}{d.month:02}{d.day:02}",
    lambda d: f"{d.year}年{d.month}月{d.day}日",
    lambda d: (
        f"{''.join('〇一二三四五六七八九'[int(c)] for c in str(d.year))}年"
        f"{chinese_words(d.month)}月{chinese_words(d.day)}日"
    ),
)


@dataclass(frozen=True)
class PairTask:
    """Named pairs: what they are, the kind of tokenizer that suits them, and the function that yields them."""

    name: str
    summary: str
    kind: str
    pairs: Callable[..., Iterator[Lines]]


PAIR_TASKS = {
    task.name: task
    for task in (
        PairTask("numbers", "number words, English or Chinese, to digits", "char", numbers),
        PairTask("dates", "a day in many formats to year-month-day", "char", dates),
        PairTask("reversed", "letters to the letters in reverse", "char", reversed_letters),
        PairTask("grammar", "a small English to Chinese: ambiguous nouns that a later word decides", "space", grammar),
    )
}


def is_pair_task(data: str) -> bool:
    """Return whether DATA names generated pairs, with or without arguments."""
    return data.partition(":")[0] in PAIR_TASKS


def task_pairs(data: str) -> Iterator[Lines]:
    """Yield the pairs of `name` or `name:key=value,…`.

    >>> next(task_pairs("reversed:length=4,seed=1"))[0][::-1] == next(task_pairs("reversed:length=4,seed=1"))[1]
    True
    """
    name, _, given = data.partition(":")
    if name not in PAIR_TASKS:
        known = ", ".join(PAIR_TASKS)
        raise DataError(f"{name}: no such generated pairs{nearest(name, PAIR_TASKS)}; there are: {known}")
    make = PAIR_TASKS[name].pairs
    return make(**arguments(name, make, given))
