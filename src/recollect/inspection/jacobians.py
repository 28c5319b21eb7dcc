"""How a recurrent state depends on earlier ones: Jacobians of the steps, their matrix products, the spectrum of W_hh.

A product of Jacobians decides what back-propagation through time carries: ∂h_T/∂h_{T−d} = J_T J_{T−1} … J_{T−d+1}.
The spectral radius of W_hh says how a linear recurrence fades in the long run, the largest singular value bounds one
step, and only the product shows what a trained network does with its gates and nonlinearities (Pascanu et al. 2013).
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.inspection.trace import Array
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import AnyRecurrence
from recollect.layers.recurrent.rnn import RNN

WIDEST = 256  # units of a layer whose matrix products are computed
ROUNDS = 8  # of the power iteration, for each distance
POWERS = 64  # the largest exponent of W_hh
TINY = 1e-300


def spectrum(layer: AnyRecurrence) -> tuple[Array, Array, Array]:
    """Return the eigenvalues (G, H, 2) of every block of W_hh, its spectral radius (G,) and σ_max (G,)."""
    blocks = layer.weight_hh.detach().double().cpu().unflatten(0, (layer.gates, layer.hidden))  # (G, H, H)
    values = torch.linalg.eigvals(blocks)
    order = values.abs().argsort(dim=1, descending=True, stable=True)
    values = values.gather(1, order)
    largest = torch.linalg.matrix_norm(blocks, 2)
    return torch.view_as_real(values).numpy(), values.abs().amax(1).numpy(), largest.numpy()


def power_norms(layer: AnyRecurrence) -> Array:
    """Return ‖W^k‖₂ for k = 0 … 64 of every block W of W_hh, (G, 65).

    In the long run it follows the spectral radius, ρ^k; before, a matrix that is not normal may grow although ρ < 1.
    """
    blocks = layer.weight_hh.detach().double().cpu().unflatten(0, (layer.gates, layer.hidden))  # (G, H, H)
    return np.stack([product_norms(block.expand(POWERS, -1, -1)) for block in blocks])


def step_jacobians(layer: AnyRecurrence, values: dict[str, Tensor]) -> Tensor | None:
    """Return ∂ state_t / ∂ state_{t−1} of every step (T, n, n) from what was recorded; None for other layers.

    The state is h, of an LSTM [h; c]. Values are (T, H); the state before the first step is zero.
    """
    inner = {name: value.detach().double().cpu() for name, value in values.items()}
    blocks = layer.weight_hh.detach().double().cpu().unflatten(0, (layer.gates, layer.hidden)).unbind(0)
    before = F.pad(inner["hidden"], (0, 0, 1, 0))[:-1]  # h_{t−1}
    if isinstance(layer, RNN):
        h = inner["hidden"]
        slope = 1 - h.square() if layer.nonlinearity == "tanh" else (h > 0).double()
        return slope[:, :, None] * blocks[0]
    if isinstance(layer, GRU):
        return _gru(layer, inner, blocks, before)
    return _lstm(inner, blocks) if isinstance(layer, LSTM) else None


def _gru(layer: GRU, inner: dict[str, Tensor], blocks: tuple[Tensor, ...], before: Tensor) -> Tensor:
    r, z, n = inner["reset_gate"], inner["update_gate"], inner["candidate"]
    of_r, of_z = (r * (1 - r))[:, :, None] * blocks[0], (z * (1 - z))[:, :, None] * blocks[1]  # ∂r, ∂z
    if layer.reset == "after":
        bias = 0 if layer.bias_hh is None else layer.bias_hh.detach().double().cpu()[2 * layer.hidden :]
        inside = before @ blocks[2].T + bias
        of_total = r[:, :, None] * blocks[2] + inside[:, :, None] * of_r
    else:
        of_total = blocks[2] @ (torch.diag_embed(r) + before[:, :, None] * of_r)
    of_n = (1 - n.square())[:, :, None] * of_total
    return torch.diag_embed(z) + (before - n)[:, :, None] * of_z + (1 - z)[:, :, None] * of_n


def _lstm(inner: dict[str, Tensor], blocks: tuple[Tensor, ...]) -> Tensor:
    names = ("input_gate", "forget_gate", "candidate", "output_gate", "cell")
    i, f, g, o, c = (inner[name] for name in names)
    c_before = F.pad(c, (0, 0, 1, 0))[:-1]
    of_i, of_f, of_o = ((s * (1 - s))[:, :, None] * blocks[k] for s, k in ((i, 0), (f, 1), (o, 3)))
    of_g = (1 - g.square())[:, :, None] * blocks[2]
    c_by_h = c_before[:, :, None] * of_f + g[:, :, None] * of_i + i[:, :, None] * of_g
    c_by_c = torch.diag_embed(f)
    slope = (o * (1 - c.tanh().square()))[:, :, None]
    h_by_h = c.tanh()[:, :, None] * of_o + slope * c_by_h
    return torch.cat([torch.cat([h_by_h, slope * c_by_c], 2), torch.cat([c_by_h, c_by_c], 2)], 1)


def product_norms(jacobians: Tensor) -> Array:
    """Return ‖J_T J_{T−1} … J_{T−d+1}‖₂ for d = 0 … T, the identity's first: (T + 1,).

    By power iteration on P Pᵀ, which is much faster than a decomposition of each product. Those of neighbouring
    distances begin with the same factors, so that the vector found for one is a good start for the next.
    """
    size = jacobians.shape[1]
    product = torch.eye(size, dtype=jacobians.dtype)
    u = torch.ones(size, dtype=jacobians.dtype)
    norms = [1.0]
    for one in jacobians.flip(0):
        product = product @ one
        scale = product.abs().max().clamp(min=TINY)  # squares of small numbers would be zero
        p = product / scale
        for _ in range(ROUNDS):
            u = F.normalize(p @ (p.T @ u), dim=0, eps=TINY)
        norms.append(float((p.T @ u).norm() * scale))
    return np.array(norms)
