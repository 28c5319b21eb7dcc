"""The plan of a training, and its state: everything that changes during it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from recollect.core.capture import Captured, Layout
from recollect.core.errors import check_choice
from recollect.core.memory import Memory
from recollect.core.task import Batches, LossFunction
from recollect.training.checkpoint import Progress
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.workers import ALONE, Alone

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class TrainingBudget:
    """When to stop: at the first of these limits."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def spent(self, progress: Progress) -> float:
        """Return the share of the budget that is spent, 0 to 1."""
        pairs = [(progress.step, self.steps), (progress.tokens, self.tokens), (progress.seconds, self.seconds)]
        return min(1.0, max((done / limit for done, limit in pairs if limit), default=0.0))


@dataclass(frozen=True)
class TrainingPlan:
    """How to train."""

    budget: TrainingBudget
    optimizer: Optimizer = field(default_factory=Optimizer)
    accumulate: int = 1  # batches to one update, weighted by their symbols
    evaluate_every: int = 200  # updates
    save_every: int = 200  # updates
    average: float = 0.0  # decay of the running average of the weights; 0: none is kept
    patience: int | None = None  # stop after so many evaluations without a better one
    capture: bool = True  # on a GPU: replay CUDA graphs where batches are alike
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: matmuls in bfloat16, weights and their updates in float32
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, PRECISIONS)


class Diverged(RuntimeError):
    """The loss or a gradient is not finite."""


@dataclass
class TrainingState:
    """A model in training: everything that changes, and the loss."""

    model: Any
    batches: Batches
    optimizer: torch.optim.Optimizer
    loss: LossFunction = field(default_factory=NextSymbol)
    memory: Memory | None = None  # carried from batch to batch
    captured: dict[Layout, Captured] = field(default_factory=dict)  # CUDA graphs, the most recently used last
    seen: set[Layout] = field(default_factory=set)  # layouts that occurred once: the second time they are captured
    average: Any = None  # a copy of the model with the running average of its weights; it is evaluated and kept
    compiled: LossFunction | None = None  # model and loss by torch.compile, for updates only
    progress: Progress = field(default_factory=Progress)
    workers: Alone = ALONE  # the processes that train it together
    network: Any = None  # the model as several processes call it: DDP, for updates only, or FSDP
    is_sharded: bool = False  # each process has its part of every weight

    @property
    def result(self) -> Any:
        """The model to measure and keep: with averaged weights where an average is kept."""
        return self.model if self.average is None else self.average
