"""Inputs for layers with any memory, and all results and gradients, in a dtype that the kernels read."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NARROW = torch.bfloat16


def draw(layer, batch, steps, *, ragged):
    """Return an input, a memory, a mask, and weights for all results."""
    x = torch.randn(batch, steps, layer.width).to(NARROW)
    leaves, structure = tree_flatten(layer.initial_memory(batch))
    memory = tree_unflatten([torch.randn_like(leaf.float()).to(NARROW) for leaf in leaves], structure)
    lengths = torch.randint(0, steps + 1, (batch,))
    lengths[0] = steps
    valid = torch.arange(steps) < lengths[:, None] if ragged else None
    weighs = [torch.randn(batch, steps, layer.width_out), *(torch.randn(leaf.shape) for leaf in leaves)]
    return x, memory, valid, weighs


def read(layer, x, memory, valid, weighs):
    """Return outputs, final memory and all gradients, by name."""
    x, memory = tree_map(lambda t: t.clone().requires_grad_(), (x, memory))
    y, after = layer(x, memory, valid=valid)
    results = [y, *after.tensors().values()]
    sum((r.double() * w.double()).sum() for r, w in zip(results, weighs, strict=True)).backward()
    found = {"y": y, "dx": x.grad} | {f"last {name}": t for name, t in after.tensors().items()}
    found |= {f"d {name}": t.grad for name, t in memory.tensors().items()}
    found |= {f"d {name}": p.grad for name, p in layer.named_parameters()}
    return {name: value.detach().double() for name, value in found.items()}
