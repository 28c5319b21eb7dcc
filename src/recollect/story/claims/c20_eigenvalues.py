"""C20: Through many steps gradients vanish where the eigenvalues of W_hh are below 1, and diverge where one is above.

中文：经过很多步之后，W_hh 的特征值小于 1 时梯度消失，大于 1 时梯度发散。
Seed: 002_c6efc9a4698e0e4d.txt:168
Budget: seconds
Expected: in a linear recurrence ln ‖W^k‖ has the slope ln ρ in the end; yet with tanh gradients vanish at ρ = 1.1 too, and a matrix whose eigenvalues are all 0.9 first grows more than a hundredfold
预期：线性递推中 ln ‖W^k‖ 的斜率最终为 ln ρ；但用 tanh 时 ρ = 1.1 也会消失，而特征值全为 0.9 的矩阵会先增长百倍以上
Rule: does not hold if a slope of a linear recurrence differs from ln ρ by more than 0.01; holds if … (linear, in the long run) where gradients of tanh vanish at ρ > 1 or a product of ρ < 1 grows above 10; else holds
Exact: holds if
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from recollect.core.record import record
from recollect.inspection.jacobians import product_norms, step_jacobians
from recollect.inspection.trace import Array
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Control, Curve, Result, Verdict
from recollect.story.judging import DETERMINISTIC
from recollect.views.bilingual import Bilingual

HIDDEN, LONG, STEPS, SEEDS = 16, 400, 100, 5
RADII = (0.5, 0.9, 1.1, 1.5)


def run(budget: Budget) -> Result:
    linear = {rho: _matrix(rho, 0) for rho in RADII}
    norms = {rho: _powers(matrix, LONG) for rho, matrix in linear.items()}
    late = {rho: math.log(found[LONG] / found[LONG // 2]) / (LONG // 2) for rho, found in norms.items()}
    largest = {rho: float(torch.linalg.matrix_norm(matrix, 2)) for rho, matrix in linear.items()}
    error = max(abs(late[rho] - math.log(rho)) for rho in RADII)
    with_tanh = [_with_tanh(_matrix(1.1, seed)) for seed in range(SEEDS)]
    chain = _powers(0.9 * torch.eye(5).double() + torch.diag(torch.ones(4).double(), 1), STEPS)
    vanished, peak = max(found[STEPS] for found in with_tanh), float(chain.max())
    found = Bilingual(
        f"Linear: the slope differs from ln ρ by at most {error:.4f} nats a step. tanh with ρ = 1.1: norm at most {vanished:.0e} after {STEPS} steps in {SEEDS} seeds. All eigenvalues 0.9: grows to {peak:.0f} at step {int(chain.argmax())}, then {chain[STEPS]:.2g} at {STEPS}.",
        f"线性：斜率与 ln ρ 至多相差每步 {error:.4f} 奈特。tanh、ρ = 1.1：{SEEDS} 个种子在 {STEPS} 步后的范数至多 {vanished:.0e}。特征值全为 0.9：第 {int(chain.argmax())} 步增至 {peak:.0f}，第 {STEPS} 步为 {chain[STEPS]:.2g}。",
    )
    by_singular = max(abs(math.log(largest[rho]) - late[rho]) for rho in RADII)
    drawn = {**{f"linear, ρ = {rho:g}": norms[rho] for rho in RADII}, "tanh, ρ = 1.1": with_tanh[0], "all 0.9": chain}
    chart = Chart(
        Bilingual("Norm of the product of the steps' Jacobians", "各步雅可比矩阵之积的范数"),
        Bilingual("steps", "步数"),
        Bilingual("norm", "范数"),
        [Curve(name, [(float(k), float(one[k])) for k in range(STEPS + 1)]) for name, one in drawn.items()],
        log_y=True,
    )
    return Result(
        verdict_of(error, vanished, peak),
        found,
        error,
        (error, error),
        Control(Bilingual("error of ln σ_max as the rate", "以 ln σ_max 为速率的误差"), by_singular),
        DETERMINISTIC,
        Bilingual("the recurrence is linear, and the steps are many", "递推是线性的，且步数很多"),
        chart,
        [
            {"ρ": rho, "σ_max": largest[rho], "slope": late[rho], f"norm after {STEPS}": float(norms[rho][STEPS])}
            for rho in RADII
        ],
    )


def verdict_of(error: float, vanished: float, peak: float) -> Verdict:
    """Return the verdict of the error of linear slopes, the norm of tanh with ρ > 1, and the peak of one with ρ < 1."""
    if error > 0.01:
        return "does not hold"
    return "holds if" if vanished < 1e-3 or peak > 10 else "holds"


def _matrix(radius: float, seed: int) -> Tensor:
    """Return a normally distributed matrix (H, H) of the given spectral radius."""
    drawn = torch.randn(HIDDEN, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn * (radius / torch.linalg.eigvals(drawn).abs().max())


def _powers(matrix: Tensor, steps: int) -> Array:
    return product_norms(matrix.expand(steps, -1, -1))


def _with_tanh(matrix: Tensor) -> Array:
    """Return the norms of ∂h_T/∂h_{T-k} of a tanh RNN that reads normally distributed inputs."""
    layer = RNN(4, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh.copy_(matrix)
        torch.nn.init.normal_(layer.weight_ih)
    with record(layer) as seen:
        layer(torch.randn(1, STEPS, 4, dtype=torch.float64))
    jacobians = step_jacobians(layer, {"hidden": seen["hidden"][0]})
    assert jacobians is not None
    return np.asarray(product_norms(jacobians))
