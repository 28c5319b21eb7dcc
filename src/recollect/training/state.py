"""What training is about: the plan, and the trainee with all that changes while it learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from recollect.core.capture import Captured, Layout
from recollect.core.memory import Memory
from recollect.core.validate import check_choice
from recollect.training.checkpoint import Progress
from recollect.training.optimizer import Optimise
from recollect.training.truncation import Truncation


class Batches(Protocol):
    """Where stretches of text come from, again and again; its place can be kept."""

    def __iter__(self) -> Iterator[Any]:
        """Give batches with `x` and `y` (B, T), `valid` (B, T) or None, and `is_start` (B,): begin anew in this row."""

    @property
    def predicted(self) -> int:
        """Symbols that one round predicts."""

    def state(self) -> dict[str, Any]:
        """Give the place as plain data."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""


@dataclass(frozen=True)
class Budget:
    """When to stop: the first of these that is reached."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def spent(self, progress: Progress) -> float:
        """Give the share of the budget that is spent, 0 to 1."""
        pairs = [(progress.step, self.steps), (progress.tokens, self.tokens), (progress.seconds, self.seconds)]
        return min(1.0, max((done / limit for done, limit in pairs if limit), default=0.0))


@dataclass(frozen=True)
class Plan:
    """How to train."""

    budget: Budget
    optimise: Optimise = field(default_factory=Optimise)
    accumulate: int = 1  # batches to one update, weighted by their symbols
    evaluate_every: int = 200  # updates
    save_every: int = 200  # updates
    patience: int | None = None  # stop after so many evaluations without a better one
    truncation: Truncation = field(default_factory=Truncation)
    capture: bool = True  # on a GPU: replay CUDA graphs where batches are alike
    smoothing: float = 0.0  # share of the target's probability that is spread over all symbols
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: products in bfloat16, weights and their updates in float32
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, ("fp32", "bf16"))


class Diverged(RuntimeError):
    """The loss or a gradient is no longer a number."""


@dataclass
class Trainee:
    """A model in training: all that changes while it learns."""

    model: Any  # a LanguageModel, or another that gives logits; with `remember` where batches have a source
    batches: Batches
    optimiser: torch.optim.Optimizer
    memory: Memory | None = None
    captured: dict[Layout, Captured] = field(default_factory=dict)  # what a GPU replays, the last used last
    seen: set[Layout] = field(default_factory=set)  # layouts of pairs that came: the second time they are captured
    compiled: Any = None  # the model as torch.compile gives it, for updates alone
    progress: Progress = field(default_factory=Progress)
