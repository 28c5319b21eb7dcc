"""Which inputs a prediction depends on: gradients, input × gradient, and what changes without an input.

All gradients of a text are one batch: row r reads the inputs and its outcome is the r-th, so that the sum of all
outcomes has the gradient of outcome r in row r. A batch of 64 rows is faster than 64 backward passes of one row, needs
no second derivation rule, and takes the fast form of every layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recollect.inspection.subject import Subject, as_array, captured
from recollect.inspection.trace import Array

GROUP = 16  # outcomes that are differentiated in one batch: a causal one does not read what comes later
FLOATS = 1 << 27  # activations of a batch, half a gigabyte


class Influence(NamedTuple):
    """Of each outcome on each input (O, S)."""

    reach: Array
    saliency: Array


def influence(subject: Subject) -> Influence:
    """Return ‖∂ y_o / ∂ x_s‖ and x_s · ∂ y_o / ∂ x_s for every outcome o and input s; zero behind a causal outcome."""
    count = len(subject.outcomes)
    size = len(subject.inputs)
    reach, saliency = np.zeros((count, size)), np.zeros((count, size))
    for some in _groups(subject, count, GROUP if subject.is_causal else count):
        last = subject.at[some[-1]] + 1 if subject.is_causal else size
        vectors, gradient = _differentiate(subject, some, last)
        reach[some, :last] = as_array(gradient.flatten(2).double().norm(dim=2))
        saliency[some, :last] = as_array((vectors * gradient).flatten(2).sum(2))
    return Influence(reach, saliency)


def _differentiate(subject: Subject, outcomes: list[int], last: int) -> tuple[Tensor, Tensor]:
    """Return the vectors of the first `last` inputs and their gradients, (R, last, D) each, a row for each outcome."""
    inputs = subject.inputs[:last].expand(len(outcomes), *subject.inputs[:last].shape)
    rows = torch.arange(len(outcomes), device=inputs.device)
    numbers = torch.tensor(outcomes, device=inputs.device)
    with torch.enable_grad():
        if subject.entry is None:
            vectors = inputs.detach().clone().requires_grad_()
            total = subject.values(vectors, rows, numbers).sum()
        else:
            with captured(subject.entry) as found:
                total = subject.values(inputs, rows, numbers).sum()
            vectors = found[0]
        (gradient,) = torch.autograd.grad(total, vectors)
    return vectors.detach(), gradient


@torch.no_grad()
def left_out(subject: Subject) -> Array:
    """Return by how much each outcome is lower without each input (O, S): log p of all − log p without it.

    NaN where nothing is left to read; zero for inputs behind a causal outcome.
    """
    count, size = len(subject.outcomes), len(subject.inputs)
    if size < 2:
        return np.full((count, size), np.nan)
    device = subject.inputs.device
    numbers = torch.arange(count, device=device)
    whole = subject.values(subject.inputs[None], torch.zeros_like(numbers), numbers)
    found = np.zeros((count, size))
    at = torch.tensor(list(subject.at), device=device)
    for some in _groups(subject, size, size):
        which = torch.tensor(some, device=device)
        seen = at[None] >= which[:, None] if subject.is_causal else torch.ones(len(some), count, dtype=torch.bool)
        rows, outcomes = seen.to(device).nonzero(as_tuple=True)
        lower = whole[outcomes] - subject.values(subject.without(some), rows, outcomes, which)
        found[outcomes.cpu().numpy(), which[rows].cpu().numpy()] = as_array(lower)
    return found


def curve(reach: Array, at: list[int], is_causal: bool) -> Array:
    """Return the mean reach by distance (D,): of input at − d, or of one in either direction d away."""
    places = np.arange(reach.shape[1])
    distance = np.asarray(at)[:, None] - places
    distance = np.where(distance < 0, -1, distance) if is_causal else np.abs(distance)
    return np.array([reach[distance == d].mean() if (distance == d).any() else np.nan for d in places])


def activations(model: nn.Module) -> int:
    """Return about how many numbers a model keeps for the backward pass of one step of one row."""
    widths = [p.shape[0] for p in model.parameters() if p.dim() == 2]
    return 3 * sum(widths) + 1


def _groups(subject: Subject, count: int, size: int) -> Iterator[list[int]]:
    """Return numbers from 0 to count − 1 in groups whose activations fit."""
    row = activations(subject.model) * max(len(subject.inputs), len(subject.tokens))
    size = max(min(size, FLOATS // row), 1)
    for first in range(0, count, size):
        yield list(range(first, min(first + size, count)))
