"""Recordings that need no download: digits as the pairs of tones that a telephone dials with.

The same arguments give the same samples on every machine. Arguments follow the name: `tones:count=200,seed=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError
from recollect.data.synthetic.draw import arguments, below, check_size

RATE = 8000  # samples a second
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477)  # Hz, ITU-T Q.23
KEYS = ("123", "456", "789", "*0#")
FREQUENCIES = {key: (LOW[row], HIGH[column]) for row, keys in enumerate(KEYS) for column, key in enumerate(keys)}
LOUDEST = 0.4  # amplitude of a tone; a full-scale sample is 1

Samples = NDArray[np.float32]
Recorded = tuple[Samples, str]  # and the digits in it


def tones(count: int = 600, noise: int = 20, seed: int = 0) -> Iterator[Recorded]:
    """Yield recordings of one digit each: two tones, 60 to 160 ms long, 2 % out of tune, between two silences.

    `noise` is the amplitude of white noise in thousandths of full scale.
    """
    return _recordings(count, noise, seed, 1, 1)


def tone_strings(count: int = 600, least: int = 3, most: int = 5, noise: int = 20, seed: int = 0) -> Iterator[Recorded]:
    """Yield recordings of `least` to `most` digits with short silences between them, and the digits as in `314`."""
    if not 1 <= least <= most:
        raise DataError(f"tone-strings: got least={least}, most={most}, expected 1 ≤ least ≤ most")
    return _recordings(count, noise, seed, least, most)


def _recordings(count: int, noise: int, seed: int, least: int, most: int) -> Iterator[Recorded]:
    check_size("count", count)
    if noise < 0:
        raise DataError(f"noise={noise}: expected 0 or more")
    rng = Random(seed)
    hiss = np.random.Generator(np.random.PCG64(seed))
    for _ in range(count):
        digits = "".join(str(below(rng, 10)) for _ in range(least + below(rng, most - least + 1)))
        parts = [_silence(rng), *(part for digit in digits for part in (_tone(rng, digit), _silence(rng)))]
        samples = np.concatenate(parts)
        samples = samples + noise / 1000 * (2 * hiss.random(len(samples)) - 1)
        yield samples.astype(np.float32), digits


def _tone(rng: Random, digit: str) -> NDArray[np.float64]:
    seconds = np.arange(int(RATE * (0.06 + 0.1 * rng.random()))) / RATE
    loud = LOUDEST * (0.2 + 0.8 * rng.random())
    waves = [np.sin(2 * np.pi * f * (0.98 + 0.04 * rng.random()) * seconds) for f in FREQUENCIES[digit]]
    return np.asarray(loud / 2 * (waves[0] + waves[1]))


def _silence(rng: Random) -> NDArray[np.float64]:
    return np.zeros(int(RATE * (0.02 + 0.06 * rng.random())))


TONES: dict[str, Callable[..., Iterator[Recorded]]] = {"tones": tones, "tone-strings": tone_strings}
TONE_TASKS = {"tones": "classify", "tone-strings": "translate"}


def generated_tones(data: str) -> Iterator[Recorded]:
    """Yield the recordings of a built-in, with arguments as in `tones:count=200`."""
    name, _, given = data.partition(":")
    make = TONES[name]
    return make(**arguments(name, make, given))
