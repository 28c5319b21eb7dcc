"""Series that need no download: the same arguments give the same values on every machine.

Arguments follow the name: `sine:length=1000,noise=20,seed=1`; noise is in hundredths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from recollect.core.errors import nearest
from recollect.data.error import DataError
from recollect.data.series.number_table import find_numbers
from recollect.data.series.series_table import SeriesTable, TimeSeries
from recollect.data.series.time_stamps import Frequency
from recollect.data.synthetic.draw import arguments, check_size

STEPS, MONTHS = Frequency("steps", 1), Frequency("months", 1)
FIRST_MONTH = 946_684_800  # 2000-01-01, in seconds since 1970


def gaussian(rng: Random) -> float:
    """Draw from N(0, 1) by Box and Muller's method: only `Random.random` is the same in every version of Python."""
    return math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(2 * math.pi * rng.random())


def sine(length: int = 1000, noise: int = 20, seed: int = 0) -> Iterator[float]:
    """Yield sin(0.01 t) + noise for t = 1, 2 …: the series that window models are introduced with."""
    rng = Random(seed)
    return (math.sin(0.01 * t) + noise / 100 * gaussian(rng) for t in range(1, length + 1))


def seasons(length: int = 240, noise: int = 20, seed: int = 0) -> Iterator[float]:
    """Yield months with a trend, a season of twelve that grows with it, and noise."""
    rng = Random(seed)
    shape = [2 * gaussian(rng) for _ in range(12)]
    for t in range(length):
        level = 10 + 0.05 * t
        yield level + 0.1 * level * shape[t % 12] + noise / 100 * level / 10 * gaussian(rng)


def random_walk(length: int = 1000, seed: int = 0) -> Iterator[float]:
    """Yield x_t = x_{t−1} + noise: nothing predicts it better than its last value."""
    rng = Random(seed)
    x = 0.0
    for _ in range(length):
        x += gaussian(rng)
        yield x


def regimes(length: int = 1200, period: int = 24, noise: int = 10, seed: int = 0) -> Iterator[float]:
    """Yield a sine whose period is halved in the last third, which a model of the first two thirds has never seen."""
    rng = Random(seed)
    phase = 0.0
    for t in range(length):
        phase += 2 * math.pi / period * (2 if t >= length * 2 // 3 else 1)
        yield math.sin(phase) + noise / 100 * gaussian(rng)


GENERATORS: dict[str, tuple[Callable[..., Iterator[float]], Frequency, str]] = {
    "sine": (sine, STEPS, "a noisy sine"),
    "seasons": (seasons, MONTHS, "months with a trend and a season of twelve"),
    "random-walk": (random_walk, STEPS, "a random walk"),
    "regimes": (regimes, STEPS, "a sine whose period changes"),
}


def is_generated_series(data: str) -> bool:
    """Return whether DATA names a generated series, with or without arguments."""
    return data.partition(":")[0] in GENERATORS


def find_series(data: str) -> None:
    """Raise a DataError where DATA is neither a file, standard input nor a generated series; no file is opened."""
    if not is_generated_series(data):
        find_numbers(data)


def generate_series(data: str) -> SeriesTable:
    """Return the series of `name` or `name:key=value,…`."""
    name, _, given = data.partition(":")
    if name not in GENERATORS:
        raise DataError(f"{name}: no such series{nearest(name, GENERATORS)}; generated are: {', '.join(GENERATORS)}")
    make, frequency, _ = GENERATORS[name]
    chosen = arguments(name, make, given)
    check_size("length", chosen.get("length", 1))
    values = np.array(list(make(**chosen)))[:, None]  # (T, 1)
    first = FIRST_MONTH if frequency is MONTHS else 0
    stamps = np.concatenate([[first], frequency.after(first, len(values) - 1)]).astype(np.int64)
    return SeriesTable(data, ("value",), frequency, (TimeSeries("", stamps, values),))
