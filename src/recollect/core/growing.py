"""Memories that lengthen with the sequence: left-aligned, with a length for each row.

Rows of different length share one batch without left padding: slot s of a row holds its s-th kept step, and the slots
after a row's kept steps are blank. `length` counts all steps read, of which the last min(length, limit) are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import Self

from recollect.core.memory import Memory, hint, pad_axis, static


@dataclass(frozen=True, eq=False, kw_only=True)
class Growing(Memory):
    """A list of steps for each row. Subclasses declare the lists, as fields with `grows(1)`.

    >>> layer = rc.SelfAttention(4, 2)
    >>> _, memory = layer(torch.zeros(1, 3, 4))
    >>> isinstance(memory, rc.Growing), memory.length.tolist(), tuple(memory.keys.shape)
    (True, [3], (1, 3, 2, 2))
    """

    length: Tensor  # (B,) steps read, kept or not
    limit: int | None = static()  # the number of steps to keep; None: all
    even: bool = hint()  # no row has a blank slot: known without reading `length`
    reserved: bool = hint()  # there are slots after the rows' last steps, to be written to
    in_place: bool = hint()  # the owner allows writing into this memory itself

    @property
    def slots(self) -> int:
        """The number of slots S: the size of the growing axis."""
        return self._lists()[0][1].shape[1]

    @property
    def kept(self) -> Tensor:
        """The number of steps that each row still holds (B,)."""
        return self.length.clamp(max=self.slots)

    def settled(self) -> Self:
        """Zero the blank slots, and drop those that are blank in every row."""
        if self.even and not self.reserved:  # there are none, and none will be written to
            return self
        longest = int(self.kept.max()) if len(self.length) else 0
        blank = torch.arange(longest, device=self.length.device) >= self.kept[:, None]  # (B, S)
        cut = {name: t[:, :longest].masked_fill(_over_features(blank, t), 0) for name, t in self._lists()}
        return self._with(**cut, reserved=False, in_place=False)

    def reserve(self, steps: int, *, in_place: bool = False) -> Self:
        """Allocate `steps` more slots, or all the slots that a limit allows."""
        size = self.slots + steps if self.limit is None else self.limit
        padded = {name: pad_axis(t, 1, size).clone() for name, t in self._lists()}
        return self._with(**padded, even=False, reserved=True, in_place=in_place)

    def extend(self, new: dict[str, Tensor], valid: Tensor | None) -> tuple[dict[str, Tensor], Tensor, Self]:
        """Append new steps (B, T, …), of each row its valid prefix.

        Returns the lists to read now (B, S, …), each slot's offset (B or 1, S) from the row's first new
        step, and the memory afterwards. New step t may attend to the slots whose offset is at most t;
        blank slots have an offset that no step reaches.
        """
        if self.reserved and self.limit is None:
            return self._write(new, valid)
        lists = self._lists()
        is_first = lists[0][1].shape[1] == 0  # then the new steps are all there is to read, without a copy
        seen = {name: new[name] if is_first else torch.cat([old, new[name]], dim=1) for name, old in lists}
        if self.even and valid is None:
            return self._extend_even(seen, new)
        return self._extend_ragged(seen, new, valid)

    def _extend_even(self, seen: dict[str, Tensor], new: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor, Self]:
        steps = _steps(new)
        slots = self.slots
        offsets = torch.arange(-slots, steps, device=self.length.device)[None]  # (1, S)
        kept = seen
        if self.limit is not None or slots == 0:
            # clone: a view would keep the storage of the dropped steps alive
            last = {name: t if self.limit is None else newest(t, self.limit) for name, t in seen.items()}
            kept = {name: t.clone(memory_format=torch.contiguous_format) for name, t in last.items()}
        return seen, offsets, self._with(**kept, length=self.length + steps)

    def _extend_ragged(
        self, seen: dict[str, Tensor], new: dict[str, Tensor], valid: Tensor | None
    ) -> tuple[dict[str, Tensor], Tensor, Self]:
        steps = _steps(new)
        slots = self.slots
        device = self.length.device
        kept = self.kept[:, None]  # (B, 1)
        count = steps if valid is None else valid.sum(1)
        old = torch.arange(slots, device=device)
        old = torch.where(old < kept, old - kept, steps)  # (B, S)
        offsets = torch.cat([old, torch.arange(steps, device=device).expand(len(kept), steps)], dim=1)

        size = slots + steps if self.limit is None else min(slots + steps, self.limit)
        total = kept + (count if valid is None else count[:, None])  # type: ignore[index]
        rank = torch.arange(size, device=device) + (total - size).clamp(min=0)  # (B, size) among the row's steps
        source = torch.where(rank < kept, rank, slots + rank - kept).clamp(max=slots + steps - 1)
        lists = {name: t.gather(1, _over_features(source, t).expand(-1, -1, *t.shape[2:])) for name, t in seen.items()}
        return seen, offsets, self._with(**lists, length=self.length + count, even=False)

    def _write(self, new: dict[str, Tensor], valid: Tensor | None) -> tuple[dict[str, Tensor], Tensor, Self]:
        steps = _steps(new)
        device = self.length.device
        slot = self.length[:, None] + torch.arange(steps, device=device)  # (B, T)
        row = torch.arange(len(self.length), device=device)[:, None].expand_as(slot)
        write = Tensor.index_put_ if self.in_place else Tensor.index_put
        lists = {name: write(t, (row, slot), new[name]) for name, t in self._lists()}
        offsets = torch.arange(self.slots, device=device) - self.length[:, None]  # (B, S)
        count = steps if valid is None else valid.sum(1)
        return lists, offsets, self._with(**lists, length=self.length + count)

    def _lists(self) -> list[tuple[str, Tensor]]:
        return [(name, part) for name, part, axis in self._parts() if axis is not None]


def newest(t: Tensor, limit: int) -> Tensor:
    """Return the last `limit` slots, or all. Without a branch, so that one compiled graph serves both cases."""
    first = torch.sym_max(0, t.shape[1] - limit)
    return t.narrow(1, first, t.shape[1] - first)


def _steps(new: dict[str, Tensor]) -> int:
    return next(iter(new.values())).shape[1]


def _over_features(t: Tensor, like: Tensor) -> Tensor:
    """View (B, S) as (B, S, 1, …), so that it broadcasts over the features of `like`."""
    return t.reshape(*t.shape, *[1] * (like.dim() - 2))
