"""Elman's network from scratch in numpy, with an explicit forward and backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


class NumpyRNN:
    """A many-to-one recurrent network: reads a sequence, and predicts once at its end.

    h_t = tanh(W_xh x_t + W_hh h_{t-1} + b_h),  h_0 = 0;   y = W_hy h_n + b_y

    After Victor Zhou's "An Introduction to Recurrent Neural Networks for Beginners" (2019): columns instead of
    batches, weights drawn from a normal distribution and divided by 1000, zero biases, gradients clipped entry by
    entry. Where we differ: his backward pass carries the gradient to the step before by W_hh; the chain rule
    requires its transpose. With W_hh the gradient is right for the last step only, which small weights hide.

    It is not a SequenceLayer: it has no batch and takes no memory. `recollect.RNN` is the same network under the
    contract.

    >>> import numpy as np
    >>> network = rc.NumpyRNN(input_size=3, output_size=2, hidden_size=8, rng=np.random.default_rng(0))
    >>> network.forward([np.eye(3)[[i]].T for i in (0, 1, 2)])[0].shape
    (2, 1)
    """

    def __init__(
        self, input_size: int, output_size: int, hidden_size: int = 64, *, rng: np.random.Generator | None = None
    ) -> None:
        rng = np.random.default_rng(0) if rng is None else rng
        self.W_hh: Array = rng.standard_normal((hidden_size, hidden_size)) / 1000
        self.W_xh: Array = rng.standard_normal((hidden_size, input_size)) / 1000
        self.W_hy: Array = rng.standard_normal((output_size, hidden_size)) / 1000
        self.b_h: Array = np.zeros((hidden_size, 1))
        self.b_y: Array = np.zeros((output_size, 1))
        self.last_inputs: list[Array] = []  # x_1 … x_n of the latest forward pass
        self.last_hs: list[Array] = []  # its h_0 … h_n

    def forward(self, inputs: Sequence[Array]) -> tuple[Array, Array]:
        """Read columns (input_size, 1), e.g. one-hot; return y (output_size, 1) and h_n (hidden_size, 1)."""
        h = np.zeros_like(self.b_h)
        self.last_inputs, self.last_hs = list(inputs), [h]
        for x in inputs:
            h = np.tanh(self.W_xh @ x + self.W_hh @ h + self.b_h)
            self.last_hs.append(h)
        return self.W_hy @ h + self.b_y, h

    def backward(self, d_y: Array) -> dict[str, Array]:
        """Return ∂loss/∂weight for every weight from d_y = ∂loss/∂y, by back-propagation through time."""
        if not self.last_hs:
            raise RuntimeError("backward: got no inputs yet; call forward first")
        d_W_xh, d_W_hh, d_b_h = np.zeros_like(self.W_xh), np.zeros_like(self.W_hh), np.zeros_like(self.b_h)
        d_h = self.W_hy.T @ d_y
        for t in reversed(range(len(self.last_inputs))):
            d_total = (1 - self.last_hs[t + 1] ** 2) * d_h  # tanh′ = 1 - tanh²
            d_W_xh += d_total @ self.last_inputs[t].T
            d_W_hh += d_total @ self.last_hs[t].T
            d_b_h += d_total
            d_h = self.one_step_back(d_total)
        return {"W_xh": d_W_xh, "W_hh": d_W_hh, "W_hy": d_y @ self.last_hs[-1].T, "b_h": d_b_h, "b_y": d_y.copy()}

    def one_step_back(self, d_total: Array) -> Array:
        """Return ∂loss/∂h_{t-1} from the gradient of W_xh x_t + W_hh h_{t-1} + b_h: by W_hhᵀ, not W_hh."""
        d_h: Array = self.W_hh.T @ d_total
        return d_h

    def step(self, gradients: Mapping[str, Array], learn_rate: float, clip: float = 1.0) -> None:
        """Update weight -= learn_rate · gradient, with every entry of the gradient clipped to ±clip."""
        for name, gradient in gradients.items():
            weight: Array = getattr(self, name)
            weight -= learn_rate * np.clip(gradient, -clip, clip)
