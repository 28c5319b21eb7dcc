"""How many bytes a batch will take, before it does: what lengthens with every step is measured, the rest follows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from recollect.generation.prefill import Model, home, undisturbed

SLACK = 2.5  # slots are reserved ahead, and copied where a row joins


@dataclass(frozen=True)
class Footprint:
    """Bytes of a row: of its logits and what does not lengthen, and of every step that it has read."""

    fixed: int
    each: int

    @classmethod
    def of(cls, model: Model) -> Footprint:
        """Measure a model's memory after one and after two steps; `each` is 0 where it stays as it is."""
        like = torch.zeros(1, 2, dtype=torch.long, device=home(model, None))
        with undisturbed(list(model.modules())):
            logits, first = model(like[:, :1])
            _, second = model(like[:, :1], first)
        each = second.nbytes - first.nbytes if model.growth == "linear" else 0
        return cls(max(first.nbytes - each, 0) + logits[:, 0].nbytes, each)

    def bytes_of(self, rows: int, steps: int) -> int:
        """Return the bytes of a batch of `rows`, of which the longest has read `steps`."""
        return int(SLACK * rows * (self.fixed + self.each * steps))
