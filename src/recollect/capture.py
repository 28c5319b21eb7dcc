"""Training on a GPU without waiting for launches: reading and back-propagation as one CUDA graph, replayed.

A small model's update is thousands of short kernels, and starting each takes the CPU longer than running it takes the
GPU. Captured once and replayed, they follow each other at once. A graph is for one shape: stretches of another, rows
that begin anew and ragged ones are read plainly.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.memory import Memory
from recollect.models.language import LanguageModel
from recollect.truncation import Truncation

WARM_UP = 3  # readings before the capture, as libraries choose their kernels and allocate then


class Captured:
    """The mean loss of a stretch of one shape, its gradients in the parameters, and the memory after it."""

    def __init__(
        self, model: LanguageModel, x: Tensor, y: Tensor, memory: Memory | None, how: Truncation, in_bf16: bool
    ) -> None:
        self.model, self.how, self.in_bf16 = model, how, in_bf16
        self.x, self.y = x.clone(), y.clone()
        self.memory = None if memory is None else memory.select(slice(None))  # a copy
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self._read()
        torch.cuda.current_stream().wait_stream(beside)
        model.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss, self.after = self._read()
        self.gradients = [p.grad for p in model.parameters()]

    def _read(self) -> tuple[Tensor, Memory]:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.in_bf16, cache_enabled=False):
            logits, after = self.how.read(self.model, self.x, self.memory)
        loss = F.cross_entropy(logits.float().flatten(0, 1), self.y.flatten())
        loss.backward()
        return loss.detach(), after.detach()

    def fits(self, x: Tensor, memory: Memory | None) -> bool:
        """Whether a stretch has the shape of the captured one."""
        return x.shape == self.x.shape and _layout(memory) == _layout(self.memory)

    def __call__(self, x: Tensor, y: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Replay on new values; the gradients stand in the parameters until the next replay."""
        self.x.copy_(x)
        self.y.copy_(y)
        if memory is not None and self.memory is not None:
            for mine, theirs in zip(self.memory.tensors().values(), memory.tensors().values(), strict=True):
                mine.copy_(theirs)
        for p, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            p.grad = gradient
        self.graph.replay()
        return self.loss, self.after


def _layout(memory: Memory | None) -> Any:
    if memory is None:
        return None
    leaves, structure = torch.utils._pytree.tree_flatten(memory)
    return [(leaf.shape, leaf.dtype) for leaf in leaves], structure
