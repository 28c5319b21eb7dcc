"""Estimates of missing values that need no training: the last value, a straight line, the seasons beside a gap."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def last_seen(values: Tensor, observed: Tensor) -> Tensor:
    """Return each value (B, T, C), the last observed one where it is missing, 0 before the first."""
    before = _before(observed)
    found = values.gather(1, before.clamp(min=0))
    return torch.where(before >= 0, found, 0.0)


def interpolated(values: Tensor, observed: Tensor) -> Tensor:
    """Return each value (B, T, C), on the straight line between its observed neighbours where it is missing.

    Beyond the first and the last observed value that value is repeated; without any the result is 0.
    """
    length = values.shape[1]
    if length == 0:
        return values
    before = _before(observed)
    after = length - 1 - _before(observed.flip(1)).flip(1)  # the length where none comes after
    left = values.gather(1, before.clamp(min=0))
    right = values.gather(1, after.clamp(max=length - 1))
    left, right = torch.where(before < 0, right, left), torch.where(after == length, left, right)
    share = (_steps(observed) - before) / (after - before).clamp(min=1)
    found = torch.lerp(left, right, share.to(values.dtype))
    return torch.where((before < 0) & (after == length), 0.0, found)


def _steps(like: Tensor) -> Tensor:
    """Return the number of each step, (B, T, C)."""
    return torch.arange(like.shape[1], device=like.device)[None, :, None].expand(like.shape)


def _before(observed: Tensor) -> Tensor:
    """Return the number of the last observed step up to each step, (B, T, C); −1 where there is none."""
    steps = torch.where(observed, _steps(observed), -1)
    return steps.cummax(1).values if steps.shape[1] else steps


def neighbouring_seasons(values: Tensor, observed: Tensor, season: int, *, is_both: bool = True) -> Tensor:
    """Return each value (B, T, C), the mean of the nearest ones whole seasons before and after where it is missing.

    Without `is_both` only those before. Where neither is observed the result is that of `interpolated`, or `last_seen`.
    """
    count, length, channels = values.shape
    tall = (count, -1, season * channels)
    padding = (0, 0, 0, -length % season)
    by_season = F.pad(values, padding).reshape(tall)  # (B, seasons, season · C)
    seen = F.pad(observed.to(values.dtype), padding).reshape(tall) > 0
    total = last_seen(by_season, seen)
    sides = (_before(seen) >= 0).to(values.dtype)
    if is_both:
        total = total + last_seen(by_season.flip(1), seen.flip(1)).flip(1)
        sides = sides + (_before(seen.flip(1)) >= 0).flip(1)
    found, sides = ((t.reshape(count, -1, channels)[:, :length]) for t in (total / sides.clamp(min=1), sides))
    simple = interpolated(values, observed) if is_both else last_seen(values, observed)
    return torch.where(sides > 0, found, simple)
