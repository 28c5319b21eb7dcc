"""Weights in the order in which the kernels' threads hold them.

A tile of 64 x 16 lies in the registers of 128 threads: half e of register 2 k + h in thread 4 q + c of warp w is row
16 w + 8 h + q, column 8 k + 2 c + e (PTX: fragments of wgmma's A). So packing is one permutation of axes.

In tf32 a tile is 64 x 8, and register 2 k + h is row 16 w + 8 h + q, column 4 k + c. Tiles that do not fit in registers
lie in shared memory, as (2, 64, 4): halves of their columns, rows, columns.

What runs is `cuda/prepare.cu`; this is its readable form, with bit-identical results.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.accel.cuda.recurrent.plan import KernelPlan

HIDDEN_SLOTS = {"lstm": (0, 1, 2, 3), "gru": (0, 1, None, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
INPUT_SLOTS = {"lstm": (0, 1, 2, 3), "gru": (0, 1, 2, None), "rnn_tanh": (0,), "rnn_relu": (0,)}
SENT_GATES = {"lstm": (0, 1, 2, 3), "gru": (0, 1, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}


def join_biases(cell: str, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """Return the sum of both biases in float32, slot by slot (H, S); the GRU's candidate keeps its two apart."""
    return (to_slots(b_ih.float(), INPUT_SLOTS[cell]) + to_slots(b_hh.float(), HIDDEN_SLOTS[cell])).contiguous()


def to_slots(weight: Tensor, slots: tuple[int | None, ...]) -> Tensor:
    """Return a unit's gates beside each other: (G·H, …) to (H, S, …); an empty slot is zero."""
    gates = 1 + max(slot for slot in slots if slot is not None)
    parts = weight.unflatten(0, (gates, -1))  # (G, H, …)
    if slots == tuple(range(gates)):
        return parts.transpose(0, 1)
    return torch.stack([torch.zeros_like(parts[0]) if s is None else parts[s] for s in slots], dim=1)


def from_slots(slotted: Tensor, slots: tuple[int | None, ...]) -> Tensor:
    """Undo `to_slots`: (H, S, …) to (G·H, …)."""
    order = sorted((slot, place) for place, slot in enumerate(slots) if slot is not None)
    return torch.cat([slotted[:, place] for _, place in order])  # no list of indices: that would be copied to the GPU


def round_to_tf32(t: Tensor) -> Tensor:
    """Round to ten bits of mantissa, half away from zero: what a tf32 product reads of float32."""
    return (t.contiguous().view(torch.int32) + 0x1000).bitwise_and(~0x1FFF).view(torch.float32)


def pack_forward(weight: Tensor, plan: KernelPlan) -> Tensor:
    """Return W_hh (G·H, H) for each block, warpgroup, tile of k and thread."""
    slotted = to_slots(weight, HIDDEN_SLOTS[plan.cell])  # (H, S, H)
    units, depth = plan.blocks * plan.units, 16 // plan.fold * plan.deep * plan.depth
    hidden, slots, _ = slotted.shape
    whole = F.pad(slotted, (0, depth - hidden, 0, 4 - slots, 0, units - hidden))  # (units, 4, k)
    # block, tile of rows, warp, unit of the warp, high and low bit of the slot; part, tile of k, half, pair, which
    axes = whole.reshape(plan.blocks, plan.wide, 4, 4, 2, 2, plan.deep, plan.depth, 2, 4, 2 // plan.fold)
    return _arrange(axes, plan, (0, 6, 1, 7), (2, 3, 5, 9, 8, 4, 10), (8, 2, 4, 3, 5, 9, 10))


def pack_backward(weight: Tensor, plan: KernelPlan) -> Tensor:
    """Return W_hh' by cluster, block, warpgroup, tile, thread: rows are the cluster's units, k is all that is sent."""
    sent = weight.unflatten(0, (len(SENT_GATES[plan.cell]), -1)).transpose(0, 1)  # (H, sent, H)
    hidden, gates, _ = sent.shape
    clusters = plan.blocks // plan.cluster
    units = plan.cluster * plan.deep * plan.depth // (gates * plan.fold) * 16
    rows = plan.wide * plan.high * 64  # of a cluster; beyond its units they are zero
    whole = F.pad(sent, (0, clusters * plan.cluster * plan.units - hidden, 0, 0, 0, units - hidden))
    whole = whole.reshape(units // 16, 16, gates, clusters, -1)  # (sixteen, unit, sent, cluster, row)
    whole = F.pad(whole, (0, rows - whole.shape[-1])).transpose(1, 2)
    axes = whole.reshape(
        *(plan.cluster, plan.deep, plan.depth, 2, 4, 2 // plan.fold),
        *(clusters, plan.wide, plan.high, 4, 2, 8),
    )  # rank, part, tile, half, pair, which; cluster, wide, high, warp, eight, quad
    return _arrange(axes, plan, (6, 0, 1, 7, 8, 2), (9, 11, 4, 3, 10, 5), (3, 9, 10, 11, 4, 5))


def _arrange(
    axes: Tensor, plan: KernelPlan, tiles: tuple[int, ...], held: tuple[int, ...], laid: tuple[int, ...]
) -> Tensor:
    """Order axes: those of tiles, then a tile's as threads hold it; the last tiles' as they lie in shared memory."""
    first, last = (axes.permute(*tiles, *order).flatten(len(tiles)) for order in (held, laid))
    kept = plan.depth - plan.laid
    return torch.cat([first[..., :kept, :], last[..., kept:, :]], dim=-2)
