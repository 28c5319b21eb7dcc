"""How the weights move: optimiser, learning rate by step, and clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from recollect.core.validate import check_choice


@dataclass(frozen=True)
class Optimise:
    """Everything about one update."""

    optimiser: Literal["adamw", "sgd"] = "adamw"
    rate: float = 3e-3
    lowest_rate: float | None = None  # where cosine ends; None: a tenth of the rate
    schedule: Literal["constant", "cosine", "root", "step", "plateau"] = "cosine"  # root: 1/√, Vaswani et al. 2017
    warmup: float = 0.02  # share of the budget during which the rate rises
    stages: int = 20  # "step": equal parts of the budget, epochs perhaps
    first_stages: int = 10  # "step": those at the full rate
    decay: float = 0.5  # "step": factor at each later stage; "plateau": at each evaluation that was not the best
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip_norm: float | None = 1.0
    clip_value: float | None = None

    def __post_init__(self) -> None:
        check_choice("optimiser", self.optimiser, ("adamw", "sgd"))
        check_choice("schedule", self.schedule, ("constant", "cosine", "root", "step", "plateau"))

    def rate_at(self, share: float, setbacks: int = 0) -> float:
        """Give the rate when `share` of the budget, 0 to 1, is spent, after so many evaluations without a best."""
        if share < self.warmup:
            return self.rate * share / self.warmup
        if self.schedule == "cosine":
            low = self.rate / 10 if self.lowest_rate is None else self.lowest_rate
            done = min((share - self.warmup) / (1 - self.warmup), 1.0)
            return low + (self.rate - low) * 0.5 * (1 + math.cos(math.pi * done))
        if self.schedule == "root":
            return self.rate * math.sqrt(self.warmup / share) if share and self.warmup else self.rate
        if self.schedule == "step":
            stage = math.floor(share * self.stages + 1e-9)  # a border belongs to the stage that it begins
            return self.rate * self.decay ** max(stage - self.first_stages + 1, 0)
        if self.schedule == "plateau":
            return self.rate * self.decay**setbacks
        return self.rate

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimiser; only matrices decay."""
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        if self.optimiser == "sgd":
            return torch.optim.SGD(model.parameters(), lr=self.rate)
        groups = [{"params": matrices, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.rate, betas=self.betas, fused=True)

    def clip(self, parameters: Iterable[Tensor]) -> float:
        """Clip the gradients; give their norm before."""
        parameters = list(parameters)
        norm = nn.utils.clip_grad_norm_(parameters, math.inf if self.clip_norm is None else self.clip_norm)
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.clip_value)
        return float(norm)
