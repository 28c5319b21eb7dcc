"""Low-rank adaptation (LoRA, Hu et al. 2022): W + α/r B A, with W fixed and A, B trained.

A is drawn as a linear map's weights are, B is zero: training begins from W. Merged, the sum replaces W, and the model
is as fast and as large as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from recollect.core.errors import nearest
from recollect.core.settings import SettingError

ORDER = "_parameters_before_lora"  # of a module with adapted matrices
TARGETS = ("qkv", "out", "up", "down", "weight_ih", "weight_hh")


class LowRank(nn.Module):
    """W + α/r B A of a matrix W (O, I): A (r, I), B (O, r).

    >>> LowRank(torch.zeros(4, 6), rank=2, alpha=16.0)(torch.ones(4, 6)).unique().tolist()
    [1.0]
    """

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.scale = alpha / rank
        self.a = nn.Parameter(nn.init.kaiming_uniform_(weight.new_empty(rank, columns), a=math.sqrt(5)))
        self.b = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the adapted matrix."""
        return torch.addmm(weight, self.b, self.a, alpha=self.scale)


def add_lora(parts: Iterable[nn.Module], rank: int, alpha: float, targets: Sequence[str]) -> int:
    """Adapt the matrices of some parts whose name, or whose module's name, is a target; return how many there are."""
    found: list[tuple[nn.Module, str]] = []
    names: set[str] = set()
    for part in parts:
        for place, module in part.named_modules():
            own = place.rpartition(".")[2]
            for name, p in module.named_parameters(recurse=False):
                label = own if name == "weight" else name
                if p.dim() == 2:
                    names.add(label)
                if p.dim() == 2 and label in targets:
                    found.append((module, name))
    names -= {"table", "segment"}  # embeddings, which are no maps
    for target in targets:
        if target not in names and set(targets) != set(TARGETS):
            raise SettingError(
                f"lora_targets: got {target!r}, expected some of {', '.join(sorted(names))}{nearest(target, names)}"
            )
    if not found:
        raise SettingError(
            f"lora_targets: got {', '.join(targets)}, expected some of {', '.join(sorted(names))}, as here"
        )
    largest = max(min(getattr(module, name).shape) for module, name in found)
    if rank > largest:
        raise SettingError(f"lora_rank: got {rank}, expected at most {largest}, the rank of the largest matrix")
    orders: dict[nn.Module, list[str]] = {}
    for module, name in found:
        weight = getattr(module, name)
        orders.setdefault(module, list(module._parameters))
        parametrize.register_parametrization(module, name, LowRank(weight.detach(), rank, alpha))
        module.__dict__[ORDER] = orders[module]
    return len(found)


def merge_lora(model: nn.Module) -> None:
    """Replace every adapted matrix by its sum."""
    for module in list(model.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
        for name in module.__dict__.pop(ORDER, []):  # kernels and optimizers take parameters in this order
            module._parameters[name] = module._parameters.pop(name)
