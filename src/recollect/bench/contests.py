"""Contests of our layers and torch.nn's: the same weights and inputs, results that must agree, and the work to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from recollect.bench.timing import FORWARD, Work, largest_difference, one_pass
from recollect.core.capture import as_graph
from recollect.core.types import AnyLayer, JsonObject
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import AnyRecurrence
from recollect.layers.recurrent.rnn import RNN

Module = TypeVar("Module", bound=nn.Module)

RECURRENT: tuple[type[AnyRecurrence], ...] = (RNN, GRU, LSTM)
HEAD_WIDTH = 64
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # relative to the largest value of each tensor


@dataclass(frozen=True)
class Contest:
    """Several implementations of the same computation."""

    name: str
    task: str
    setting: JsonObject
    contenders: dict[str, Work]  # "ours", and every peer by its name
    results: dict[str, Work]  # of the contenders, to be compared
    differ: Callable[[Any, Any, float], float]  # the largest difference of two results; raises `Differs`
    tolerance: float
    operations: float  # additions and multiplications, at least
    bytes: float  # read or written, at least
    weights: int  # bytes of the weights


@dataclass(frozen=True)
class ContestShape:
    """The shape, dtype and device of a layer's inputs."""

    batch: int
    steps: int
    hidden: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def draw(self) -> Tensor:
        """Draw inputs (B, T, H)."""
        drawn = torch.randn(self.batch, self.steps, self.hidden, generator=torch.Generator().manual_seed(0))
        return drawn.to(self.device, self.dtype)

    def place(self, module: Module) -> Module:
        """Return a module on the device and in the dtype of the inputs."""
        return module.to(self.device, self.dtype)

    def words(self) -> JsonObject:
        """Return the setting as plain data."""
        sizes = {"batch": self.batch, "steps": self.steps, "hidden": self.hidden}
        return {**sizes, "dtype": str(self.dtype).removeprefix("torch."), "device": self.device}


def layer_contests(shapes: list[ContestShape], passes: tuple[str, ...]) -> Iterator[Contest]:
    """Yield the contests of all layers, built one at a time to save GPU memory."""
    for shape in shapes:
        for kind in RECURRENT:
            for task in passes:
                yield recurrent_contest(kind, shape, task)
        for task in passes:
            yield attention_contest(shape, task)


def recurrent_contest(kind: type[AnyRecurrence], shape: ContestShape, task: str) -> Contest:
    """Return the contest of a recurrent layer and torch's."""
    ours = shape.place(kind(shape.hidden, shape.hidden))
    theirs = ours.to_torch()
    weights = ours.weight_ih.numel() + ours.weight_hh.numel()
    operations = 2 * shape.batch * shape.steps * weights
    return _contest(kind.__name__, task, shape, ours, theirs, lambda x: theirs(x)[0], operations)


def attention_contest(shape: ContestShape, task: str) -> Contest:
    """Return the contest of causal self-attention and torch's."""
    heads = max(shape.hidden // HEAD_WIDTH, 1)
    ours = shape.place(SelfAttention(shape.hidden, heads))
    theirs = shape.place(nn.MultiheadAttention(shape.hidden, heads, batch_first=True))
    with torch.no_grad():
        for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):  # both: in, in bias, out, out bias
            a.copy_(b)
    mask = nn.Transformer.generate_square_subsequent_mask(shape.steps).to(shape.device, shape.dtype)

    def read(x: Tensor) -> Tensor:
        return theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    tokens = shape.batch * shape.steps
    operations = 2 * tokens * shape.hidden * (4 * shape.hidden + shape.steps)  # a step attends to half on average
    return _contest("SelfAttention", task, shape, ours, theirs, read, operations)


def _contest(
    name: str,
    task: str,
    shape: ContestShape,
    ours: AnyLayer,
    theirs: nn.Module,
    read: Callable[[Tensor], Tensor],
    operations: float,
) -> Contest:
    x = shape.draw()
    peer = f"nn.{type(theirs).__name__}"
    contenders = {
        "ours": one_pass(task, ours, lambda x: ours(x)[0], x),
        peer: one_pass(task, theirs, read, x),
    }
    if shape.device == "cuda":
        contenders[f"{peer} in a CUDA graph"] = as_graph(contenders[peer])
    times = 1 if task == FORWARD else 3  # the backward pass has two matmuls for each of the forward pass
    weights = sum(p.nbytes for p in ours.parameters())
    return Contest(
        name,
        task,
        shape.words(),
        contenders,
        contenders,
        largest_difference,
        TOLERANCES[shape.dtype],
        operations=times * operations,
        bytes=times * (2 * x.nbytes + weights),
        weights=weights,
    )
