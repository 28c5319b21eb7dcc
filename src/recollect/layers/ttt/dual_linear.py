"""The dual form of TTT-Linear with explicit outer gradients: only what depends on W_t′ is computed in a loop.

Slots are (M, R, S, H): M mini-batches of S steps, R = B·N heads. With E the inner errors φ times the rate η, c_t the
share of step t, σ that of a whole mini-batch (zero where a row does not finish it) and G₀ what was accumulated before:

    Z_j = K_j W_j        E_j = η φ(Z_j)        W_{j+1} = W_j − σ_j (K_jᵀ E_j + [j = 0] G₀)                   (the loop)
    A_j = Q_j W_j + P_j E_j − c [j = 0] Q_j G₀ with P_j = −c tril(Q_j K_jᵀ)                          (all j at once)

Backward, with D_j = ∂L/∂W_j and U_j = ∂L/∂(K_jᵀ E_j) = −σ_j D_{j+1} + [j unfinished] ∂L/∂G:

    ∂E_j = P_jᵀ ∂A_j + K_j U_j        D_j = D_{j+1} + Q_jᵀ ∂A_j + K_jᵀ ∂Z_j                                 (the loop)
    ∂q = ∂A W_jᵀ + ∂S k, ∂k = ∂Sᵀ q + E U_jᵀ + ∂Z W_jᵀ with ∂S = −c tril(∂A Eᵀ)                     (all j at once)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.layers.ttt.inner import EPSILON


class Slots(NamedTuple):
    """The operands. I is the width of the inner model's inputs: H, or H + 1 with a bias."""

    k: Tensor  # (M, R, S, I)
    target: Tensor  # (M, R, S, H): what f_res is trained to give
    q: Tensor  # (M, R, S, I)
    rate: Tensor  # (M, R, S, 1)
    weight: Tensor  # (R, I, H) at the first slot
    gathered: Tensor  # (R, I, H) before it
    share: Tensor  # (S, 1)
    border: Tensor  # (M or 1, R or 1, 1, 1): the share of a whole mini-batch; zero where it is not finished
    open: Tensor  # (M or 1, R or 1, 1, 1): one where a mini-batch is not finished, else zero
    gamma: Tensor | None  # (R, 1, H)
    beta: Tensor | None


def in_slots(t: Tensor, size: int) -> Tensor:
    """Return (B, N, T, ·) as slots (M, R, S, ·); the last are blank: zeros."""
    lacking = -t.shape[2] % size
    t = F.pad(t, (0, 0, 0, lacking)) if lacking else t
    return t.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4).flatten(1, 2).contiguous()


def borders(share: Tensor | float, is_open: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return `border` and `open` of the slots from which mini-batches are unfinished (M, R); None: no mini-batch."""
    share = torch.as_tensor(share, dtype=like.dtype, device=like.device)
    if is_open is None:
        return share.expand(1, 1, 1, 1), like.new_zeros(1, 1, 1, 1)
    is_open = is_open[..., None, None]
    return share.masked_fill(is_open, 0), is_open.to(like.dtype)


def read_slots(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
    """Return f_res at all queries (M, R, S, H), the weights after the last border, and the gradient since (R, I, H)."""
    found: tuple[Tensor, Tensor, Tensor] = _Read.apply(*slots)  # type: ignore[no-untyped-call]
    return found


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        slots = Slots(*given)
        norm = _Norm.of(slots)
        weights, errors = _learn(slots, norm)
        before = weights[:-1]  # (M, R, I, H)
        answers = slots.q @ before + (slots.q @ slots.k.mT).tril_().mul_(-slots.share) @ errors
        answers[0] -= slots.share * (slots.q[0] @ slots.gathered)
        left = (slots.k.mT @ (errors * slots.open)).sum(0) + slots.open[0] * slots.gathered
        ctx.save_for_backward(*given, before, errors)
        return answers, weights[-1].clone(), left

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_answers: Tensor, d_weight: Tensor, d_left: Tensor) -> tuple[Tensor | None, ...]:
        *given, before, errors = ctx.saved_tensors
        return _backward(Slots(*given), before, errors, d_answers, d_weight, d_left)


def _learn(slots: Slots, norm: _Norm | None) -> tuple[Tensor, Tensor]:
    """Return the weights at all borders (M + 1, R, I, H), and the errors times the rate (M, R, S, H)."""
    weight = slots.weight
    weights = [weight]
    errors = []
    moved = (slots.k * -slots.border).mT  # (M, R, I, S)
    first = slots.border[0] * slots.gathered
    for j in range(len(slots.k)):
        z = slots.k[j] @ weight
        error = 2 * (z - slots.target[j]) if norm is None else norm.error(z, j)
        errors.append(error.mul_(slots.rate[j]))
        weight = torch.baddbmm(weight if j else weight - first, moved[j], error)
        weights.append(weight)
    return torch.stack(weights), torch.stack(errors)


def _backward(
    slots: Slots, before: Tensor, errors: Tensor, d_answers: Tensor, d_weight: Tensor, d_left: Tensor
) -> tuple[Tensor | None, ...]:
    k, q, share = slots.k, slots.q, slots.share
    d_answers = d_answers.contiguous()
    curve = _Curve(slots, before)
    scores = (q @ k.mT).tril_()
    d_scores = (d_answers @ errors.mT).tril_()
    d_share = -(d_scores * scores).sum((0, 1, 3))[:, None]
    d_errors = scores.mul_(-share).mT @ d_answers
    d_scores.mul_(-share)
    d_open = slots.open * d_left  # (M, R, I, H)
    d_errors += k @ d_open
    d_weights = [d_weight]  # D_j, from the last
    sources = q.mT @ d_answers
    moved = k * -slots.border
    d_moves: list[Tensor] = []
    d_zs: list[Tensor] = []
    for j in reversed(range(len(k))):
        move = torch.baddbmm(d_errors[j], moved[j], d_weights[-1])
        d_moves.append(move)
        d_zs.append(curve.times(move * slots.rate[j], j))
        d_weights.append(torch.baddbmm(d_weights[-1] + sources[j], k[j].mT, d_zs[-1]))
    after = torch.stack(d_weights[-2::-1])  # D_{j+1} (M, R, I, H)
    d_error = torch.stack(d_moves[::-1])
    d_z = torch.stack(d_zs[::-1])
    u = d_open - slots.border * after
    d_gathered = u[0] - q[0].mT @ (share * d_answers[0])
    d_share -= (d_answers[0] * (q[0] @ slots.gathered)).sum((0, 2))[:, None]
    d_border = -(after * (k.mT @ errors)).sum((2, 3), keepdim=True)
    d_border[0] -= (after[0] * slots.gathered).sum((1, 2), keepdim=True)
    d_q = d_answers @ before.mT + d_scores @ k
    d_q[0] -= (share * d_answers[0]) @ slots.gathered.mT
    d_k = d_scores.mT @ q + errors @ u.mT + d_z @ before.mT
    d_rate = torch.linalg.vecdot(d_error, curve.value)[..., None]
    d_target, d_gamma, d_beta = curve.rest(slots)
    d_border = d_border.sum_to_size(slots.border.shape)
    return d_k, d_target, d_q, d_rate, d_weights[-1], d_gathered, d_share, d_border, None, d_gamma, d_beta


class _Norm(NamedTuple):
    """The inner loss's gradient at LN(z) is g = 2 γ² ẑ + 2 γ (β − target)."""

    slope: Tensor  # (R, 1, H)
    offset: Tensor  # (M, R, S, H)

    @staticmethod
    def of(slots: Slots) -> _Norm | None:
        if slots.gamma is None or slots.beta is None:
            return None
        return _Norm(2 * slots.gamma.square(), 2 * slots.gamma * (slots.beta - slots.target))

    def error(self, z: Tensor, j: int) -> Tensor:
        """Return φ(z) = ∂‖LN(z) − target‖² / ∂z for mini-batch j."""
        z_hat, mean, root = torch.native_layer_norm(z, z.shape[-1:], None, None, EPSILON)
        return _back_through(torch.addcmul(self.offset[j], self.slope, z_hat), z, mean, root)


class _Curve:
    """The derivative of φ at all z, which is symmetric: φ itself is the gradient of a function.

    With B(x) = (x − mean x − ẑ mean(x ẑ)) r and r = 1/√(variance + ε), φ = B(g). From p = ∂L/∂φ, with h = B(p) = ∂L/∂g:

        ∂L/∂z = B(2 γ² h) − r (mean(g ẑ) h + mean(p ẑ) φ + mean(p φ) ẑ)
    """

    def __init__(self, slots: Slots, before: Tensor) -> None:
        self.z = slots.k @ before
        self.norm = _Norm.of(slots)
        self.h: list[Tensor] = []
        if self.norm is None:
            self.value = 2 * (self.z - slots.target)
            return
        self.z_hat, self.mean, self.root = torch.native_layer_norm(self.z, self.z.shape[-1:], None, None, EPSILON)
        g = torch.addcmul(self.norm.offset, self.norm.slope, self.z_hat)
        self.value = _back_through(g, self.z, self.mean, self.root)
        self.g_on_z = torch.linalg.vecdot(g, self.z_hat)[..., None]
        self.scale = self.root / -self.z.shape[-1]

    def times(self, p: Tensor, j: int) -> Tensor:
        """Return ∂L/∂z of mini-batch j, and keep h."""
        if self.norm is None:
            self.h.append(p)
            return 2 * p
        z, mean, root, z_hat, value = (t[j] for t in (self.z, self.mean, self.root, self.z_hat, self.value))
        h = _back_through(p, z, mean, root)
        self.h.append(h)
        rest = self.g_on_z[j] * h
        rest.addcmul_(torch.linalg.vecdot(p, z_hat)[..., None], value)
        rest.addcmul_(torch.linalg.vecdot(p, value)[..., None], z_hat)
        return _back_through(self.norm.slope * h, z, mean, root).addcmul_(rest, self.scale[j])

    def rest(self, slots: Slots) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the gradients of the target, γ and β."""
        h = torch.stack(self.h[::-1])
        if slots.gamma is None or slots.beta is None:
            return -2 * h, None, None
        d_target = -2 * slots.gamma * h
        d_gamma = (2 * h * (slots.beta - slots.target + 2 * slots.gamma * self.z_hat)).sum((0, 2))[:, None]
        return d_target, d_gamma, -d_target.sum((0, 2))[:, None]


def _back_through(g: Tensor, z: Tensor, mean: Tensor, root: Tensor) -> Tensor:
    """Return ∂L/∂z from g = ∂L/∂ẑ."""
    mask = [True, False, False]
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
        g, z, z.shape[-1:], mean, root, None, None, mask
    )
    return found[0]
