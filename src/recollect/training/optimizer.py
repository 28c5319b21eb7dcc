"""The optimizer: algorithm, learning rate over the budget, clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from recollect.core.errors import check_choice

ALGORITHMS = ("adamw", "sgd")
SCHEDULES = ("constant", "cosine", "root", "step", "plateau")


@dataclass(frozen=True)
class Optimizer:
    """The settings of an update: the algorithm, the learning rate over the budget, clipping."""

    optimiser: Literal["adamw", "sgd"] = "adamw"
    rate: float = 3e-3
    lowest_rate: float | None = None  # at the end of "cosine"; None: a tenth of the rate
    schedule: Literal["constant", "cosine", "root", "step", "plateau"] = "cosine"  # root: 1/√, Vaswani et al. 2017
    warmup: float = 0.02  # share of the budget during which the rate rises
    stages: int = 20  # "step": equal parts of the budget, such as epochs
    first_stages: int = 10  # "step": the number of stages at the full rate
    decay: float = 0.5  # "step": factor at each later stage; "plateau": at each evaluation that was not the best
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip_norm: float | None = 1.0
    clip_value: float | None = None

    def __post_init__(self) -> None:
        check_choice("optimiser", self.optimiser, ALGORITHMS)
        check_choice("schedule", self.schedule, SCHEDULES)

    def rate_at(self, share: float, setbacks: int = 0) -> float:
        """Return the rate when `share` of the budget, 0 to 1, is spent, after so many evaluations without a best."""
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

    def set_rates(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        """Set every parameter group to its own multiple of a rate: a schedule keeps the ratios between groups."""
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * rate

    def unfreeze(self, optimizer: torch.optim.Optimizer, share: float) -> bool:
        """Let the groups be trained whose share of the budget is spent, and no other; return whether any changed."""
        changed = False
        for group in optimizer.param_groups:
            if not group["begins"]:
                continue
            is_trained = share >= group["begins"]
            for p in group["params"]:
                changed = changed or p.requires_grad != is_trained
                p.requires_grad_(is_trained)
        return changed

    def build(self, model: nn.Module, groups: Mapping[str, tuple[float, float]] | None = None) -> torch.optim.Optimizer:
        """Return torch's optimizer of the parameters that are trained; only matrices have weight decay.

        `groups`: by the name of a parameter, the factor of its rate and the share of the budget from which on it is
        trained; by default 1 and 0.
        """
        found: dict[tuple[float, float, float], list[nn.Parameter]] = {}
        for name, p in model.named_parameters():
            factor, begins = (groups or {}).get(name, (1.0, 0.0))
            decay = self.weight_decay if p.dim() >= 2 and self.optimiser == "adamw" else 0.0
            if p.requires_grad:
                found.setdefault((factor, -decay, begins), []).append(p)
        made = [
            {
                "params": found[key],
                "lr": key[0] * self.rate,
                "factor": key[0],
                "weight_decay": -key[1],
                "begins": key[2],
            }
            for key in sorted(found)
        ]
        if self.optimiser == "sgd":
            return torch.optim.SGD(made, lr=self.rate)
        return torch.optim.AdamW(made, lr=self.rate, betas=self.betas, fused=True)

    def clip(self, parameters: Iterable[Tensor]) -> float:
        """Clip the gradients; return their norm before."""
        parameters = [p for p in parameters if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if hasattr(
            norm, "full_tensor"
        ):  # of a sharded model each process has a part, to which torch 2.8 would add its ε
            norm = norm.full_tensor()
        nn.utils.clip_grads_with_norm_(parameters, math.inf if self.clip_norm is None else self.clip_norm, norm)
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.clip_value)
        return float(norm)
