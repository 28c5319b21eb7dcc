"""What a calendar tells about a time stamp: hour, weekday and day of the year, each as a point on a circle."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from recollect.data.series.time_stamps import Frequency, Instants, instant

DAY, WEEK = 86400, 604800


def calendar_names(frequency: Frequency) -> tuple[str, ...]:
    """Return the features that vary at a frequency; none where stamps are no dates."""
    if frequency.unit == "steps":
        return ()
    is_fast = frequency.unit == "seconds"
    names = [
        *(("hour",) if is_fast and frequency.count < DAY else ()),
        *(("weekday",) if is_fast and frequency.count < WEEK else ()),
        *(("yearday",) if is_fast or frequency.count < 12 else ()),
    ]
    return tuple(names)


def calendar_features(stamps: Instants, frequency: Frequency) -> NDArray[np.float32]:
    """Return (T, K): sine and cosine of each feature, as a share of a day, a week or a year."""
    moments = [instant(int(stamp)) for stamp in stamps]
    turns = {
        "hour": lambda m: (m.hour + m.minute / 60 + m.second / 3600) / 24,
        "weekday": lambda m: (m.weekday() + m.hour / 24) / 7,
        "yearday": lambda m: (m.timetuple().tm_yday - 1) / 365.25,
    }
    names = calendar_names(frequency)
    angles = np.array([[2 * math.pi * turns[name](m) for name in names] for m in moments]).reshape(len(stamps), -1)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
