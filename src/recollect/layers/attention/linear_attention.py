"""Linear attention: the list of keys and values summed up in one matrix of associations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.record import is_readable, note
from recollect.core.types import TensorOptions
from recollect.core.validate import fill_invalid
from recollect.layers.positions import alibi_slopes

EPSILON = 1e-6  # avoids 0 / 0 where all features are nearly zero
CHUNK = 64  # steps read in parallel in the fast form


@dataclass(frozen=True, eq=False, kw_only=True)
class Associations(Memory):
    """The sums over all keys and values.

    >>> _, memory = rc.LinearAttention(4, 2)(torch.zeros(1, 100, 4))
    >>> tuple(memory.sum.shape), tuple(memory.total.shape)  # however many steps were read
    ((1, 2, 2, 2), (1, 2, 2))
    """

    sum: Tensor  # (B, N, H, H), Σ φ(k) vᵀ
    total: Tensor  # (B, N, H), Σ φ(k)


class LinearAttention(SequenceLayer[Associations]):
    """Causal linear attention (Katharopoulos et al. 2020).

    S_t = S_{t-1} + φ(k_t) v_tᵀ;  z_t = z_{t-1} + φ(k_t);  c_t = S_tᵀ φ(q_t) / (z_t · φ(q_t) + ε);  y = W_o c

    φ is "elu" (elu(x) + 1) or "identity"; `normalised=False` omits the division, as is required with "identity", whose
    sums may be negative. With `decay` both sums decay by γ_n = exp(−m_n) a step, m_n the slopes of ALiBi, so that
    recent steps weigh most and a stream may have any length (Sun et al. 2023, RetNet, with other γ). Where we differ:
    ε, and W_q, W_k, W_v are stacked in `qkv`.

    >>> layer = rc.LinearAttention(8, 2)
    >>> y, memory = layer(torch.randn(1, 5, 8))
    >>> y, memory = layer(torch.randn(1, 1, 8), memory)  # one step costs the same after any number of steps
    >>> y.shape
    torch.Size([1, 1, 8])
    """

    chunk_sizes = (CHUNK,)
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
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of the width {width}")
        if feature not in ("elu", "identity"):
            raise ValueError(f"feature: got {feature!r}, expected 'elu' or 'identity'")
        if normalised and feature == "identity":
            raise ValueError("normalised: got True with the identity feature, expected False: its sums may be negative")
        self.width = self.width_out = width
        self.heads = heads
        self.head_width = width // heads
        self.feature = feature
        self.normalised = feature == "elu" if normalised is None else normalised
        slopes = torch.tensor(alibi_slopes(heads) if decay else [0.0] * heads, **factory)
        self.register_buffer("slopes", slopes, persistent=False)
        self.qkv = nn.Linear(width, 3 * width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Associations:
        """Return sums of zero."""
        shape = (batch_size, self.heads, self.head_width)
        options = self._like(like)
        return Associations(sum=torch.zeros(*shape, self.head_width, **options), total=torch.zeros(shape, **options))

    def read(self, x: Tensor, memory: Associations, valid: Tensor | None) -> tuple[Tensor, Associations]:
        """Add one association at a time, in a loop over time."""
        q, k, v = self._project(x, valid)
        S = memory.sum
        z = memory.total
        contexts = [q[:, :0]]
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
        if is_readable():
            note(self, 2, weights=self._weights(q, k))
        return self.out(context.flatten(2)), Associations(sum=S, total=z)

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Return what each of these steps adds to each context, c_t = Σ_s a_ts v_s + what was remembered before."""
        place = torch.arange(q.shape[1], device=q.device)
        faded = self._faded(place[:, None] - place).permute(2, 0, 1).tril()  # (N, T, T)
        scores = torch.einsum("btnh,bsnh->bnts", q, k) * faded
        return scores / (scores.sum(-1, keepdim=True) + EPSILON) if self.normalised else scores

    def fast(self, x: Tensor, memory: Associations, valid: Tensor | None) -> tuple[Tensor, Associations]:
        """Read all chunks at once: within a chunk as masked attention, across chunks through the sums.

        Only the sums before each chunk are computed one after the other.
        """
        steps = x.shape[1]
        if steps < 2:
            return self.read(x, memory, valid)
        size = min(CHUNK, steps)
        chunks = -(-steps // size)
        q, k, v = (_in_chunks(t, size) for t in self._project(x, valid))  # (B, N, M, C, H)
        place = torch.arange(size, device=x.device)
        read = torch.full((1,), steps, device=x.device) if valid is None else valid.sum(1)
        count = (read[:, None] - size * torch.arange(chunks, device=x.device)).clamp(0, size)  # (B or 1, M)
        scores = q @ k.mT * self._faded(place[:, None] - place).permute(2, 0, 1).tril()[:, None]  # (B, N, M, C, C)
        left = k * self._faded(count[..., None] - 1 - place).permute(0, 3, 1, 2)[..., None]  # at the chunk's end
        kept = self._faded(count).permute(2, 1, 0)[..., None]  # (N, M, B or 1, 1)
        S, S_after = _sums_before(memory.sum, (left.mT @ v).unbind(2), kept[..., None])
        z, z_after = _sums_before(memory.total, left.sum(3).unbind(2), kept)
        before = q * self._faded(place + 1).transpose(0, 1)[:, None, :, None]
        total = scores.sum(-1) + (before @ z[..., None])[..., 0]  # (B, N, M, C)
        context = self._normalise(scores @ v + before @ S, total).flatten(2, 3)[:, :, :steps].transpose(1, 2)
        return self.out(context.flatten(2)), Associations(sum=S_after, total=z_after)

    def _faded(self, distance: Tensor) -> Tensor:
        """Return γ_n^distance for every head: (…, N)."""
        return torch.exp(-distance.clamp(min=0)[..., None] * self.slopes)

    def _project(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return φ(q), φ(k), v (B, T, N, H); a key of zero adds nothing, so padding does not change the sums."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, self.head_width)).unbind(2)
        if self.feature == "elu":
            q, k = F.elu(q) + 1, F.elu(k) + 1
        return q, fill_invalid(k, valid), v

    def _normalise(self, context: Tensor, total: Tensor) -> Tensor:
        return context / (total + EPSILON).unsqueeze(-1) if self.normalised else context


def _in_chunks(t: Tensor, size: int) -> Tensor:
    """Return (B, T, N, H) as (B, N, M, C, H); the last chunk is filled with zeros."""
    lacking = -t.shape[1] % size
    t = F.pad(t, (0, 0, 0, 0, 0, lacking)) if lacking else t
    return t.unflatten(1, (t.shape[1] // size, size)).permute(0, 3, 1, 2, 4)


def _sums_before(first: Tensor, added: Sequence[Tensor], kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums before each chunk (B, N, M, …), and those after the last; `kept` is (N, M, B or 1, …)."""
    sums = [first]
    for m, new in enumerate(added):
        sums.append(torch.addcmul(new, kept[:, m].transpose(0, 1), sums[-1]))
    return torch.stack(sums[:-1], 2), sums[-1]
