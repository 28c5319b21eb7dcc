"""TTT-Linear with the kernels: one autograd function from k, v, q and the rate to the answers and the memory after."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.layers.ttt.inner import EPSILON

CHUNK = 64  # steps read in parallel
MANY_HEADS = 256  # two on each multiprocessor: then the time between two loops is hidden by the other one
LAUNCH = {  # warps, and stages of the software pipeline
    "learn": (4, 2),
    "learn, many heads": (4, 3),
    "ask": (4, 1),
    "ask_backward": (4, 1),
    "unlearn": (4, 3),
    "join": (4, 1),
}


@dataclass(frozen=True)
class Shape:
    """What the kernels are compiled for, and the numbers of steps."""

    size: int  # of a mini-batch
    steps: int
    residual: bool
    ragged: bool  # rows begin within a mini-batch, or end before the last step, or within a mini-batch
    gathered: bool  # rows may begin within a mini-batch
    precision: str  # of float32 in matmuls

    @property
    def per_chunk(self) -> int:
        """Mini-batches in a chunk."""
        return max(CHUNK // self.size, 1)

    @property
    def chunks(self) -> int:
        """The largest number of chunks of a row."""
        slots = self.steps + (self.size - 1 if self.gathered else 0)
        return -(-slots // (self.per_chunk * self.size))


def read(
    shape: Shape, k: Tensor, v: Tensor, q: Tensor, rate: Tensor, weight: Tensor, gathered: Tensor, share: Tensor,
    border: Tensor, gamma: Tensor | None, beta: Tensor | None, place: Tensor, count: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the answers (B, T, N, H), the weights at the last border, and the gradient since (B, N, H, H).

    k, v, q are (B, T, N, H), the rate (B, T, N); a row's steps begin at slot `place` (B,) and are `count` many.
    """
    given = (shape, k, v, q, rate, weight, gathered, share, border, gamma, beta, place, count)
    found: tuple[Tensor, Tensor, Tensor] = _FusedRead.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _FusedRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shape: Shape, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        answers, last, left, *kept = _Launches(shape, *given).forward()
        ctx.shape = shape
        ctx.save_for_backward(*given, *kept)
        return answers, last, left

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, d_last: Tensor, d_left: Tensor) -> tuple[Tensor | None, ...]:
        *given, phi, checkpoints = ctx.saved_tensors
        call = _Launches(ctx.shape, *given)
        ends = (dy.contiguous(), d_last.contiguous(), d_left.contiguous())
        return None, *call.backward(phi, checkpoints, *ends, any(ctx.needs_input_grad[7:9])), None, None


class _Launches:
    """The launches of one reading."""

    def __init__(
        self, shape: Shape, k: Tensor, v: Tensor, q: Tensor, rate: Tensor, weight: Tensor, gathered: Tensor,
        share: Tensor, border: Tensor, gamma: Tensor | None, beta: Tensor | None, place: Tensor, count: Tensor,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.k, self.v, self.q, self.rate = k, v, q, rate.contiguous()
        self.weight, self.gathered = weight.contiguous(), gathered.contiguous()
        self.shares, self.borders = share, border
        self.share, self.border = share.float().contiguous(), border.float()
        self.gamma = None if gamma is None else gamma.contiguous()
        self.beta = None if beta is None else beta.contiguous()
        self.norm = (self.gamma, self.beta)
        self.place, self.count = place, count
        self.batch, self.steps, self.heads, self.width = k.shape
        self.kernels: Any = import_module("recollect.accel.cuda.ttt.kernels")

    def forward(self) -> tuple[Tensor, ...]:
        """Return the answers, the weights and the gradient left, and what the backward pass needs."""
        answers, phi = (torch.empty_like(self.k, memory_format=torch.contiguous_format) for _ in range(2))
        checkpoints = self._matrices(self.k.dtype)
        last = torch.empty_like(self.weight)
        left = torch.empty_like(last) if self.shape.ragged else torch.zeros_like(last)
        steps = (self.k, self.v, self.rate)
        ends = (self.place, self.count)
        tile = max(16, 1 << (self.shape.size - 1).bit_length())
        self._launch(
            "learn", True, *steps, self.weight, self.gathered, *self.norm, self.border, *ends, phi, checkpoints, last,
            left, self.steps, self.shape.chunks, *_strides(self.k, self.v), TILE=tile, RESIDUAL=self.shape.residual,
            GATHERED=self.shape.gathered, EPS=EPSILON,
        )  # fmt: skip
        self._launch(
            "ask", False, self.k, self.q, self.rate, phi, checkpoints, self.gathered, *self.norm, self.share,
            self.border, *ends, answers, self.steps, self.shape.chunks, *_strides(self.k, self.q), C=self.tile,
            RESIDUAL=self.shape.residual, GATHERED=self.shape.gathered, EPS=EPSILON,
        )  # fmt: skip
        return answers, last, left, phi, checkpoints

    @property
    def tile(self) -> int:
        """The steps of a chunk, as a power of two."""
        return max(16, 1 << (self.shape.per_chunk * self.shape.size - 1).bit_length())

    def backward(
        self, phi: Tensor, checkpoints: Tensor, dy: Tensor, d_last: Tensor, d_left: Tensor, needs_share: bool
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of k, v, q, the rate, the weights, what was gathered, the shares, γ and β."""
        shape = self.shape
        ends = (self.place, self.count)
        d_answers, d_errors, z_hats, dz, hs, dk, dq, dv = (torch.empty_like(dy) for _ in range(8))
        d_rate, d_share, d_border = (self._scalars() for _ in range(3))
        scalars = torch.empty(*d_rate.shape, 4, device=dy.device)
        d_norm = dy.new_zeros(*self._matrices(dy.dtype).shape[:2], 4, self.width, dtype=torch.float32)
        d_checkpoints = torch.empty_like(checkpoints)
        first = torch.empty_like(self.weight, dtype=torch.float32)
        options = {"GATHERED": shape.gathered, "RESIDUAL": shape.residual, "C": self.tile}
        sizes = (self.steps, shape.chunks)
        gamma, beta = self.norm
        self._launch(
            "ask_backward", False, self.k, self.q, self.v, self.rate, phi, checkpoints, self.gathered, gamma, beta,
            self.share, self.border, *ends, dy, d_answers, d_errors, z_hats, scalars, d_norm, d_share, *sizes,
            *_strides(self.k, self.q, self.v), SHARED=needs_share, EPS=EPSILON, **options,
        )  # fmt: skip
        tile = max(16, 1 << (shape.size - 1).bit_length())
        self._launch(
            "unlearn", True, self.k, self.q, self.rate, phi, z_hats, scalars, d_answers, d_errors, gamma,
            self.border, d_last, d_left, *ends, dz, hs, d_rate, d_border, d_checkpoints, first, *sizes,
            *_strides(self.k, self.q), TILE=tile, LEFT=shape.ragged, SHARED=needs_share,
        )  # fmt: skip
        self._launch(
            "join", False, self.k, self.q, self.v, self.rate, phi, checkpoints, self.gathered, gamma, beta, self.share,
            self.border, *ends, dy, d_answers, z_hats, dz, hs, d_checkpoints, d_left, dk, dq, dv, d_norm, *sizes,
            *_strides(self.k, self.q, self.v), LEFT=shape.ragged, **options,
        )  # fmt: skip
        if shape.ragged:  # the kernels write no step beyond a row's end
            beyond = (torch.arange(self.steps, device=dy.device) >= self.count[:, None])[..., None, None]
            for t in (dk, dv, dq, d_answers, dz):
                t.masked_fill_(beyond, 0)
        d_gathered, d_first_border = self._before(d_answers, dz, first, d_left) if shape.gathered else (None, 0)
        shares = (self._by_place(d_share), d_border.sum() + d_first_border) if needs_share else (None, None)
        return (
            dk, dv, dq, d_rate.to(self.rate.dtype), first.to(self.weight.dtype), d_gathered,
            *(None if d is None else d.to(t.dtype) for d, t in zip(shares, (self.shares, self.borders), strict=True)),
            *self._norms(d_norm),
        )  # fmt: skip

    def _by_place(self, d_share: Tensor) -> Tensor:
        """Return the gradient of the shares: the sum over the steps at each position."""
        place = (self.place[:, None] + torch.arange(self.steps, device=self.place.device)) % self.shape.size  # (B, T)
        zeros = d_share.new_zeros(self.shape.size)
        return zeros.index_add(0, place.flatten().long(), d_share.sum(2).flatten())

    def _before(self, d_answers: Tensor, dz: Tensor, first: Tensor, d_left: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of what was gathered before the first step, and its part in that of the border's share.

        ∂G₀ = −Σ_t c_t q_tᵀ ∂a_t − σ D_1 + [unfinished] ∂L/∂G over the first mini-batch, D_1 = D_0 − Qᵀ ∂A − Kᵀ ∂Z.
        """
        step = torch.arange(min(self.shape.size, self.steps), device=first.device)
        slot = step + self.place[:, None]  # (B, S)
        is_first = (slot < self.shape.size) & (step < self.count[:, None])
        k, q, da, dz = (t[:, : len(step)].float() for t in (self.k, self.q, d_answers, dz))
        q = q.masked_fill(~is_first[..., None, None], 0)
        k = k.masked_fill(~is_first[..., None, None], 0)
        after = first - _outer(q, da) - _outer(k, dz)
        is_done = (self.place + self.count >= self.shape.size)[:, None, None, None]
        share = self.share[slot % self.shape.size][..., None, None]
        found = torch.where(is_done, -self.border * after, d_left.float()) - _outer(q * share, da)
        return found.to(self.gathered.dtype), -(after * self.gathered * is_done).sum()

    def _norms(self, d_norm: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gamma, beta = self.norm
        if gamma is None or beta is None:
            return None, None
        found = d_norm.view(self.batch, self.heads, -1, 4, self.width).sum((0, 2))  # (N, 4, H)
        d_gamma, d_beta = (found[:, :2] + found[:, 2:]).unbind(1)
        return d_gamma.to(gamma.dtype), d_beta.to(beta.dtype)

    def _matrices(self, dtype: torch.dtype) -> Tensor:
        shape = (self.batch * self.heads, self.shape.chunks, self.width, self.width)
        return torch.empty(shape, dtype=dtype, device=self.k.device)

    def _scalars(self) -> Tensor:
        return torch.zeros(self.k.shape[:3], dtype=torch.float32, device=self.k.device)

    def _launch(self, name: str, is_loop: bool, *given: Any, **options: Any) -> None:
        heads = self.batch * self.heads
        grid = (heads,) if is_loop else (self.shape.chunks, heads)
        shape: dict[str, Any] = {
            "N": self.heads,
            "H": self.width,
            "S": self.shape.size,
            "PER_CHUNK": self.shape.per_chunk,
        }
        shape |= {"NORM": self.norm[0] is not None, "RAGGED": self.shape.ragged, "PRECISION": self.shape.precision}
        warps, stages = LAUNCH["learn, many heads" if name == "learn" and heads >= MANY_HEADS else name]
        getattr(self.kernels, name)[grid](*given, **shape, **options, num_warps=warps, num_stages=stages)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("bsni,bsno->bnio", a, b)


def _strides(*tensors: Tensor) -> list[int]:
    """Return the strides of rows, steps and heads; those of a head's entries are one."""
    return [stride for t in tensors for stride in t.stride()[:3]]
