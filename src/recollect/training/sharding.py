"""A model that several processes hold together: each keeps 1/N of the weights, of their gradients and of the
optimizer's tensors (FSDP2: `fully_shard`; Rajbhandari et al. 2020, Zhao et al. 2023).

A block's weights are gathered from all processes before it is read and again before its gradient, and freed after; its
gradient is averaged in shards, and each process updates its own shard. So a model may be N times as large as what one
device holds, beside the largest block, the embedding and the head. Every process takes part in every call of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from recollect.core.dispatch import without_accel
from recollect.core.settings import SettingError
from recollect.layers.block import Block
from recollect.training.network import Host

T = TypeVar("T")


def shard(model: nn.Module, size: int) -> Any:
    """Divide a model's parameters among all processes, in place; return what its updates are computed with.

    Our device code reads weights where they lie, and cuDNN's buffers move them: both are disabled in this model.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(model.parameters()).device
    check_divisible(model)
    for module in model.modules():
        if getattr(module, "kernel", None) is not None:
            module.kernel = None  # type: ignore[assignment]  # an attribute of the class
    mesh = init_device_mesh(device.type, (size,))
    for part in blocks_of(model):
        fully_shard(part, mesh=mesh)
    return fully_shard(Host(model), mesh=mesh)


def check_divisible(model: nn.Module) -> None:
    """Raise a `SettingError` for a model that cannot be sharded.

    FSDP expects that all processes use the same weights in an update. Where a memory begins from weights (TTT), those
    do whose rows begin.
    """
    kind = type(model).__name__
    for name, p in model.named_parameters():
        if p.dim() == 0:
            raise SettingError(
                f"shard: got true, but {name} of {kind} is a single number, which cannot be divided; leave shard out"
            )
    parts: list[Any] = [part for part in model.modules() if isinstance(part, Block)]
    parts += [model] if getattr(model, "carries", False) else []
    if any(t.requires_grad for part in parts for t in part.initial_memory(1).leaves()):
        raise SettingError(f"shard: got true, but memories of this {kind} begin from its weights; leave shard out")


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the parts that are gathered one at a time: the blocks.

    A decoder's blocks are read outside their call too, by what writes their memory, and stay with embedding and head.
    """
    return [part for part in model.modules() if isinstance(part, Block)]


def in_lockstep(network: Any, work: Callable[[Any], T]) -> T:
    """Return what some work makes of a sharded model; every process has to do the same work at the same time."""
    with without_accel():
        found: T = network(work)
    network.reshard()
    return found


def divided(full: Tensor, like: Tensor) -> Tensor:
    """Return this process's shard of a tensor that each has in full, where `like` is divided; nothing is sent."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or full.shape != like.shape:  # the optimizer counts its steps in each process
        return full
    own: Tensor = distribute_tensor(full.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return own


def is_divided(t: Tensor) -> bool:
    """Return whether a tensor is this process's shard of one that all hold together."""
    return hasattr(t, "full_tensor")
