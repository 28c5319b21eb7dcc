"""Positions: sinusoidal and learned ones as a layer, rotary ones and linear biases for attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.types import TensorOptions
from recollect.core.validate import ContractError, may_look_at

ROTARY_BASE = 10000.0  # of RoFormer, Su et al. 2021


@dataclass(frozen=True, eq=False, kw_only=True)
class Position(Memory):
    """The number of steps read.

    >>> _, memory = rc.Positions(4)(torch.zeros(2, 5, 4))
    >>> memory.length.tolist()
    [5, 5]
    """

    length: Tensor  # (B,)


class Positions(SequenceLayer[Position]):
    """x_t + p_t, where t continues from the number of steps in the memory.

    "sinusoidal" (Vaswani et al. 2017): p_{t,2i} = sin(t / 10000^{2i/D}), p_{t,2i+1} = cos(t / 10000^{2i/D}).
    "learned" (Gehring et al. 2017): a table of `max_length` vectors; later steps raise a ContractError.

    >>> y, memory = rc.Positions(4)(torch.zeros(1, 1, 4))
    >>> y.tolist()  # sin 0, cos 0, sin 0, cos 0
    [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(
        self,
        width: int,
        kind: Literal["sinusoidal", "learned"] = "sinusoidal",
        *,
        max_length: int | None = None,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if kind not in ("sinusoidal", "learned"):
            raise ValueError(f"kind: got {kind!r}, expected 'sinusoidal' or 'learned'")
        if (kind == "learned") != (max_length is not None):
            raise ValueError(
                f"max_length: got {max_length}, expected a number for 'learned' positions and none otherwise"
            )
        self.width = self.width_out = width
        self.kind = kind
        self.max_length = max_length
        self.table = None if max_length is None else nn.Parameter(torch.randn(max_length, width, **factory) * 0.02)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Position:
        """Return a length of 0."""
        return Position(length=torch.zeros(batch_size, dtype=torch.long, device=self._like(like)["device"]))

    def read(self, x: Tensor, memory: Position, valid: Tensor | None) -> tuple[Tensor, Position]:
        """Add each step's position vector to it."""
        positions = positions_from(memory.length, x.shape[1])  # (B, T)
        added = sinusoids(positions, x.shape[2], x.dtype) if self.table is None else self._look_up(positions, valid)
        count = x.shape[1] if valid is None else valid.sum(1)
        return x + added, Position(length=memory.length + count)

    def _look_up(self, positions: Tensor, valid: Tensor | None) -> Tensor:
        assert self.table is not None
        if valid is not None:
            positions = positions.masked_fill(~valid, 0)  # padding may lie beyond the table
        if may_look_at(positions):
            furthest = int(positions.max())
            if furthest >= len(self.table):
                raise ContractError(
                    "x", f"a step at position {furthest}", f"at most {len(self.table)} learned positions"
                )
        return F.embedding(positions, self.table)  # its gradient is many times faster than an index's


def positions_from(length: Tensor, steps: int) -> Tensor:
    """Return the positions (B, T) of the next steps."""
    if steps == 1:  # two launches fewer on a GPU
        return length[:, None]
    return length[:, None] + torch.arange(steps, device=length.device)


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return the sinusoidal vectors (B, T, D) of positions (B, T)."""
    angles = _angles(positions, width + width % 2, 10000.0, dtype)  # (B, T, ⌈D/2⌉)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width].to(dtype)


def _angles(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32  # positions in the millions are distinct
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=wide) / width
    return positions[..., None].to(wide) / base**exponents


def rotate(x: Tensor, positions: Tensor, base: float = ROTARY_BASE) -> Tensor:
    """Rotate the pairs (x_{2i}, x_{2i+1}) by the angle position / base^{2i/H} (RoFormer, Su et al. 2021).

    x is (B, T, N, H), positions (B, T). The dot product of two rotated vectors depends on their distance only.
    """
    angles = _angles(positions, x.shape[-1], base, x.dtype)[:, :, None]  # (B, T, 1, H/2)
    sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes m_n of the bias −m_n · distance (ALiBi, Press et al. 2022): 2^{−8n/N} for n = 1 … N.

    Where N is not a power of two: those of the next lower power, then every other one of the next higher.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * n / power) for n in range(1, power + 1)]
    between = [2 ** (-4 * n / power) for n in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]
