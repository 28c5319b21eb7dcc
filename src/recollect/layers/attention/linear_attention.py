"""Linear attention: the list of attention folded into one matrix of associations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.record import note
from recollect.core.validate import fill_invalid
from recollect.layers.positions import alibi_slopes

EPSILON = 1e-6  # keeps 0 / 0 away where all features are nearly zero
PIECE = 64  # steps read side by side in the fast form


@dataclass(frozen=True, eq=False, kw_only=True)
class Associations(Memory):
    """What every key brought, summed up.

    >>> _, memory = rc.LinearAttention(4, 2)(torch.zeros(1, 100, 4))
    >>> tuple(memory.sum.shape), tuple(memory.total.shape)  # however many steps were read
    ((1, 2, 2, 2), (1, 2, 2))
    """

    sum: Tensor  # (B, N, H, H), Σ φ(k) vᵀ
    total: Tensor  # (B, N, H), Σ φ(k)


class LinearAttention(SequenceLayer[Associations]):
    """Causal linear attention (Katharopoulos et al. 2020).

    S_t = S_{t-1} + φ(k_t) v_tᵀ;  z_t = z_{t-1} + φ(k_t);  c_t = S_tᵀ φ(q_t) / (z_t · φ(q_t) + ε);  y = W_o c

    φ is "elu" (elu(x) + 1) or "identity"; `normalised=False` leaves out the division, as it must with "identity",
    whose sums may be negative. With `decay` both sums fade by γ_n = exp(−m_n) a step, m_n the slopes of ALiBi, so that
    what is near counts most and a stream can be read without end (Sun et al. 2023, RetNet, with other γ). Where we
    differ: ε, and q, k, v lie one below the other in `qkv`.

    >>> layer = rc.LinearAttention(8, 2)
    >>> y, memory = layer(torch.randn(1, 5, 8))
    >>> y, memory = layer(torch.randn(1, 1, 8), memory)  # one step costs the same after any number of steps
    >>> y.shape
    torch.Size([1, 1, 8])
    """

    chunk_sizes = (PIECE,)
    slopes: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        feature: Literal["elu", "identity"] = "elu",
        normalised: bool | None = None,
        decay: bool = False,
        bias: bool = False,
        **factory: Any,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of the width {width}")
        if feature not in ("elu", "identity"):
            raise ValueError(f"feature: got {feature!r}, expected 'elu' or 'identity'")
        if normalised and feature == "identity":
            raise ValueError("normalised: got True with the identity feature, expected False: its sums may be negative")
        self.width = self.width_out = width
        self.heads, self.head_width, self.feature = heads, width // heads, feature
        self.normalised = feature == "elu" if normalised is None else normalised
        slopes = torch.tensor(alibi_slopes(heads) if decay else [0.0] * heads, **factory)
        self.register_buffer("slopes", slopes, persistent=False)
        self.qkv = nn.Linear(width, 3 * width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Associations:
        """Begin with no associations."""
        shape, options = (batch_size, self.heads, self.head_width), self._like(like)
        return Associations(sum=torch.zeros(*shape, self.head_width, **options), total=torch.zeros(shape, **options))

    def read(self, x: Tensor, memory: Associations, valid: Tensor | None) -> tuple[Tensor, Associations]:
        """Step through time, adding one association at a time."""
        q, k, v = self._project(x, valid)
        S, z, contexts = memory.sum, memory.total, [q[:, :0]]
        moves = torch.ones(x.shape[:2], dtype=torch.long, device=x.device) if valid is None else valid.long()
        for t in range(x.shape[1]):
            kept = self._faded(moves[:, t])[..., None]  # (B, N, 1)
            S = kept[..., None] * S + k[:, t, :, :, None] * v[:, t, :, None]
            z = kept * z + k[:, t]
            context = (S * q[:, t, :, :, None]).sum(2)  # (B, N, H)
            contexts.append(self._normalise(context, (z * q[:, t]).sum(-1))[:, None])
        context = torch.cat(contexts, dim=1)
        note(self, context=context)
        note(self, None, sum=S)
        return self.out(context.flatten(2)), Associations(sum=S, total=z)

    def fast(self, x: Tensor, memory: Associations, valid: Tensor | None) -> tuple[Tensor, Associations]:
        """Read piece by piece: inside a piece as masked attention, between pieces through the sums."""
        q, k, v = (t.transpose(1, 2) for t in self._project(x, valid))  # (B, N, T, H)
        S, z, contexts = memory.sum, memory.total, [q[:, :, :0]]
        for start in range(0, x.shape[1], PIECE):
            part = slice(start, start + PIECE)
            real = None if valid is None else valid[:, part]
            context, S, z = self._piece(q[:, :, part], k[:, :, part], v[:, :, part], S, z, real)
            contexts.append(context)
        context = torch.cat(contexts, dim=2).transpose(1, 2)
        return self.out(context.flatten(2)), Associations(sum=S, total=z)

    def _piece(
        self, q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read some steps (B, N, T, H): what was summed before has faded, and each key by its distance."""
        place = torch.arange(q.shape[2], device=q.device)
        count = place.new_full((1,), len(place)) if valid is None else valid.sum(1)  # (B or 1,)
        scores = q @ k.transpose(-1, -2) * self._faded(place[:, None] - place).permute(2, 0, 1).tril()  # (B, N, T, T)
        before = q * self._faded(place + 1).transpose(0, 1)[..., None]
        total = scores.sum(-1) + (before @ z[..., None])[..., 0]  # (B, N, T)
        context = self._normalise(scores @ v + before @ S, total)
        left = k * self._faded(count[:, None] - 1 - place).transpose(1, 2)[..., None]  # at the piece's end
        kept = self._faded(count)[..., None]  # (B or 1, N, 1)
        return context, kept[..., None] * S + left.transpose(-1, -2) @ v, kept * z + left.sum(2)

    def _faded(self, distance: Tensor) -> Tensor:
        """Give γ_n^distance for every head: (…, N)."""
        return torch.exp(-distance.clamp(min=0)[..., None] * self.slopes)

    def _project(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Give φ(q), φ(k), v (B, T, N, H); a key of zero adds nothing, so padding leaves the sums alone."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, self.head_width)).unbind(2)
        if self.feature == "elu":
            q, k = F.elu(q) + 1, F.elu(k) + 1
        return q, fill_invalid(k, valid), v

    def _normalise(self, context: Tensor, total: Tensor) -> Tensor:
        return context / (total + EPSILON).unsqueeze(-1) if self.normalised else context
