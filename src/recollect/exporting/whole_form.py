"""The whole-sequence form of a model: all tokens (B, T) to all logits (B, T, V), without a memory.

Only for families that read a sequence as one: torch.export unrolls a loop over time, or over chunks of it, to the
length of its example.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PARALLEL = ("window", "transformer")  # families without a loop over time
SHAPES = ((1, 1), (3, 41), (2, 130))  # compared before the file is kept: others than that of the example


class WholeForm(nn.Module):
    """A model from its initial memory: ids (B, T) to logits (B, T, V)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits after every symbol."""
        logits: Tensor = self.model(tokens)[0]
        return logits


def whole_program(model: Any) -> Any:
    """Return the form as a program of ONNX, for any batch and any length."""
    batch, steps = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("steps", min=1, max=longest(model))
    given = (torch.zeros(2, 7, dtype=torch.long),)
    shapes = ({0: batch, 1: steps},)
    exported = torch.export.export(WholeForm(model).eval(), given, dynamic_shapes=shapes, strict=True)
    return torch.onnx.export(exported, input_names=["tokens"], output_names=["logits"], verbose=False)


def longest(model: Any) -> int:
    """Return how many symbols a model can read: the rows of its table of positions, where it has one."""
    tables = [module.max_length for module in model.modules() if getattr(module, "max_length", None) is not None]
    return min([1 << 16, *tables])


@torch.no_grad()
def differences(model: Any, path: Path) -> list[tuple[Tensor, Tensor]]:
    """Return the logits that ONNX Runtime computes, each with those of the model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    draw = torch.Generator().manual_seed(0)
    found = []
    for rows, steps in SHAPES:
        ids = torch.randint(model.vocab_size, (rows, min(steps, longest(model))), generator=draw)
        (logits,) = session.run(None, {"tokens": ids.numpy()})
        found.append((torch.from_numpy(logits), model(ids)[0]))
    return found
