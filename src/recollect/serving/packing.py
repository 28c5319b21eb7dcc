"""Arrays as the page reads them: little-endian numbers in base64, exact to the last bit."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recollect.core.types import JsonObject

KINDS = {"f4": "<f4", "u4": "<u4", "u2": "<u2", "u1": "<u1"}


def pack(values: ArrayLike, dtype: str = "f4") -> JsonObject:
    """Return an array as plain data: its dtype, its shape, and its numbers in base64."""
    array = np.ascontiguousarray(np.asarray(values), dtype=KINDS[dtype])
    return {"dtype": dtype, "shape": list(array.shape), "data": b64encode(array.tobytes()).decode()}


def fitting_integer(most: int) -> str:
    """Return the smallest dtype that holds integers up to `most`."""
    return next(name for name in ("u1", "u2", "u4") if most <= np.iinfo(KINDS[name]).max)


def pack_ids(values: Any) -> JsonObject:
    """Return an array of ids, in the smallest dtype that holds them."""
    array = np.asarray(values)
    return pack(array, fitting_integer(int(array.max(initial=0))))
