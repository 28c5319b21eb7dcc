"""Our layers beside torch.nn's: the same weights and inputs, results that must agree, and the work to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recollect.bench.timing import FORWARD, Work, largest_difference, one_pass
from recollect.core.capture import as_graph
from recollect.core.layer import SequenceLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.layers.recurrent.rnn import RNN

RECURRENT: tuple[type[Recurrence[Any]], ...] = (RNN, GRU, LSTM)
HEAD_WIDTH = 64
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # relative to the largest value of each tensor


@dataclass(frozen=True)
class Contest:
    """Some ways to the same result."""

    name: str
    task: str
    setting: dict[str, Any]
    contenders: dict[str, Work]  # "ours", and every peer by its name
    results: dict[str, Work]  # of the contenders, to be compared
    differ: Callable[[Any, Any, float], float]  # the largest difference of two results; raises `Differs`
    tolerance: float
    operations: float  # additions and products that cannot be left out
    bytes: float  # that must be read or written, at least
    weights: int  # bytes of the weights


@dataclass(frozen=True)
class ContestShape:
    """What a layer reads."""

    batch: int
    steps: int
    hidden: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def draw(self) -> Tensor:
        """Draw inputs (B, T, H)."""
        drawn = torch.randn(self.batch, self.steps, self.hidden, generator=torch.Generator().manual_seed(0))
        return drawn.to(self.device, self.dtype)

    def place(self, module: nn.Module) -> Any:
        """Bring a module to where the inputs are."""
        return module.to(self.device, self.dtype)

    def words(self) -> dict[str, Any]:
        """Return the setting as plain data."""
        sizes = {"batch": self.batch, "steps": self.steps, "hidden": self.hidden}
        return {**sizes, "dtype": str(self.dtype).removeprefix("torch."), "device": self.device}


def layer_contests(shapes: list[ContestShape], passes: tuple[str, ...]) -> Iterator[Contest]:
    """Return the contests of all layers, made one after the other: GPUs have only so much memory."""
    for shape in shapes:
        for kind in RECURRENT:
            for task in passes:
                yield recurrent_contest(kind, shape, task)
        for task in passes:
            yield attention_contest(shape, task)


def recurrent_contest(kind: type[Recurrence[Any]], shape: ContestShape, task: str) -> Contest:
    """Let a recurrent layer and torch's read the same."""
    ours: Recurrence[Any] = shape.place(kind(shape.hidden, shape.hidden))
    theirs = ours.to_torch()
    products = ours.weight_ih.numel() + ours.weight_hh.numel()
    operations = 2 * shape.batch * shape.steps * products
    return _contest(kind.__name__, task, shape, ours, theirs, lambda x: theirs(x)[0], operations)


def attention_contest(shape: ContestShape, task: str) -> Contest:
    """Let self-attention and torch's read the same, both causally."""
    heads = max(shape.hidden // HEAD_WIDTH, 1)
    ours = shape.place(SelfAttention(shape.hidden, heads))
    theirs = shape.place(nn.MultiheadAttention(shape.hidden, heads, batch_first=True))
    with torch.no_grad():
        for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):  # both: in, in bias, out, out bias
            a.copy_(b)
    mask = shape.place(_Mask(shape.steps)).mask

    def read(x: Tensor) -> Tensor:
        return theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    tokens = shape.batch * shape.steps
    operations = 2 * tokens * shape.hidden * (4 * shape.hidden + shape.steps)  # each step sees half of all
    return _contest("SelfAttention", task, shape, ours, theirs, read, operations)


class _Mask(nn.Module):
    """Hides what comes later."""

    mask: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(steps))


def _contest(
    name: str,
    task: str,
    shape: ContestShape,
    ours: SequenceLayer[Any],
    theirs: nn.Module,
    read: Callable[[Tensor], Tensor],
    operations: float,
) -> Contest:
    x, peer = shape.draw(), f"nn.{type(theirs).__name__}"
    contenders = {
        "ours": one_pass(task, ours, lambda x: ours(x)[0], x),
        peer: one_pass(task, theirs, read, x),
    }
    if shape.device == "cuda":
        contenders[f"{peer} in a CUDA graph"] = as_graph(contenders[peer])
    times = 1 if task == FORWARD else 3  # back-propagation does every product twice more
    weights = sum(p.nbytes for p in ours.parameters())
    facts: dict[str, Any] = {"operations": times * operations, "bytes": times * (2 * x.nbytes + weights)}
    tolerance = TOLERANCES[shape.dtype]
    return Contest(
        name, task, shape.words(), contenders, contenders, largest_difference, tolerance, **facts, weights=weights
    )
