"""Linear attention: the list of attention folded into one matrix of associations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.entry import fill_invalid
from recollect.layer import SequenceLayer
from recollect.memory import Memory
from recollect.observe import note

EPSILON = 1e-6  # keeps 0 / 0 away where all features are nearly zero
PIECE = 64  # steps read side by side in the fast form


@dataclass(frozen=True, eq=False, kw_only=True)
class Associations(Memory):
    """What every key brought, summed up."""

    sum: Tensor  # (B, N, H, H), Σ φ(k) vᵀ
    total: Tensor  # (B, N, H), Σ φ(k)


class LinearAttention(SequenceLayer[Associations]):
    """Causal linear attention (Katharopoulos et al. 2020).

    S_t = S_{t-1} + φ(k_t) v_tᵀ;  z_t = z_{t-1} + φ(k_t);  c_t = S_tᵀ φ(q_t) / (z_t · φ(q_t) + ε);  y = W_o c

    φ is "elu" (elu(x) + 1) or "identity"; `normalised=False` leaves out the division, as it must with "identity",
    whose sums may be negative. Where we differ: ε, and q, k, v lie one below the other in `qkv`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        feature: Literal["elu", "identity"] = "elu",
        normalised: bool | None = None,
        bias: bool = False,
        **factory: Any,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads: seen {heads}, wanted a divisor of the width {width}")
        if feature not in ("elu", "identity"):
            raise ValueError(f"feature: seen {feature!r}, wanted 'elu' or 'identity'")
        if normalised and feature == "identity":
            raise ValueError("normalised: seen True with the identity feature, wanted False: its sums may be negative")
        self.width = self.width_out = width
        self.heads, self.head_width, self.feature = heads, width // heads, feature
        self.normalised = feature == "elu" if normalised is None else normalised
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
        for t in range(x.shape[1]):
            S = S + k[:, t, :, :, None] * v[:, t, :, None]
            z = z + k[:, t]
            context = (S * q[:, t, :, :, None]).sum(2)  # (B, N, H)
            contexts.append(self._normalise(context, (z * q[:, t]).sum(-1))[:, None])
        context = torch.cat(contexts, dim=1)
        note(self, context=context, sum=S)
        return self.out(context.flatten(2)), Associations(sum=S, total=z)

    def fast(self, x: Tensor, memory: Associations, valid: Tensor | None) -> tuple[Tensor, Associations]:
        """Read piece by piece: inside a piece as masked attention, between pieces through the sums."""
        q, k, v = self._project(x, valid)
        S, z, contexts = memory.sum, memory.total, [q[:, :0]]
        for start in range(0, x.shape[1], PIECE):
            part = slice(start, start + PIECE)
            context, S, z = self._piece(q[:, part], k[:, part], v[:, part], S, z)
            contexts.append(context)
        return self.out(torch.cat(contexts, dim=1).flatten(2)), Associations(sum=S, total=z)

    def _piece(self, q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = torch.einsum("btnh,bsnh->bnts", q, k).tril()  # (B, N, T, S)
        context = torch.einsum("bnts,bsni->btni", scores, v) + torch.einsum("btnh,bnhi->btni", q, S)
        total = scores.sum(-1).transpose(1, 2) + torch.einsum("btnh,bnh->btn", q, z)
        return self._normalise(context, total), S + torch.einsum("bsnh,bsni->bnhi", k, v), z + k.sum(1)

    def _project(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Give φ(q), φ(k), v (B, T, N, H); a key of zero adds nothing, so padding leaves the sums alone."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, self.head_width)).unbind(2)
        if self.feature == "elu":
            q, k = F.elu(q) + 1, F.elu(k) + 1
        return q, fill_invalid(k, valid), v

    def _normalise(self, context: Tensor, total: Tensor) -> Tensor:
        return context / (total + EPSILON).unsqueeze(-1) if self.normalised else context
