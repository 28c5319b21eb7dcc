"""MinGRU (Feng et al. 2024) by CONTRIBUTING.md: recollect train TEXT -m examples/min_gru.py:MinGRU."""

import torch
from torch import Tensor, nn

from recollect import Hidden, SequenceLayer, check_layer, note


class MinGRU(SequenceLayer[Hidden]):
    """h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ h̃_t,  z_t = σ(W_z x_t),  h̃_t = W_h x_t  ("Were RNNs All We Needed?")."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.width_out = width
        self.update = nn.Linear(width, width)  # W_z
        self.candidate = nn.Linear(width, width)  # W_h

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        """Begin with zeros."""
        return Hidden(hidden=torch.zeros(batch_size, self.width_out, **self._like(like)))

    def read(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden]:
        """Compute all gates at once, then the states one after another."""
        z = torch.sigmoid(self.update(x))  # (B, T, H)
        if valid is not None:
            z = z.masked_fill(~valid[..., None], 0)  # the memory does not move at padding
        note(self, update_gate=z)
        fresh = z * self.candidate(x)  # (B, T, H)
        h = memory.hidden
        outputs = [x[:, :0]]  # T = 0 is legal
        for t in range(x.shape[1]):
            h = (1 - z[:, t]) * h + fresh[:, t]
            outputs.append(h[:, None])
        return torch.cat(outputs, dim=1), Hidden(hidden=h)


if __name__ == "__main__":
    check_layer(MinGRU(4).double())
