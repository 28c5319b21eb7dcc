"""The correspondence of our parameters and the tensors of a checkpoint, in both directions.

An `Entry` names one parameter of ours and the tensors it consists of. `join` makes ours of theirs, `split` theirs of
ours; both are linear and only move rows, so that `split` also converts a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recollect.core.serialize import FileError
from recollect.core.tensor_names import differences


@dataclass(frozen=True)
class Entry:
    """One parameter of ours, and the tensors of a checkpoint that it consists of."""

    ours: str
    theirs: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor], Sequence[Tensor]]


def same(ours: str, theirs: str) -> Entry:
    """Return the entry of a tensor that is the same on both sides."""
    return Entry(ours, (theirs,), lambda parts: parts[0], lambda t: [t])


def transposed(ours: str, theirs: str) -> Entry:
    """Return the entry of a matrix that the checkpoint holds transposed, as GPT-2's do."""
    return Entry(ours, (theirs,), lambda parts: parts[0].mT, lambda t: [t.mT])


def stacked(ours: str, theirs: Sequence[str]) -> Entry:
    """Return the entry of a tensor that is several of theirs, of equal size, one below the other."""
    return Entry(ours, tuple(theirs), lambda parts: torch.cat(list(parts)), lambda t: t.chunk(len(theirs)))


def rotary(ours: str, theirs: Sequence[str], heads: int, kv_heads: int, head_width: int) -> Entry:
    """Return the entry of queries, keys and values whose rotary positions are in Hugging Face's order.

    A head's features i and i + H/2 are rotated together there, 2i and 2i + 1 here (as in RoFormer): the rows of W_q and
    W_k are in another order, and scores are the same.
    """
    sizes = [heads * head_width, kv_heads * head_width, kv_heads * head_width]

    def join(parts: Sequence[Tensor]) -> Tensor:
        q, k, v = parts
        return torch.cat([to_pairs(q, head_width), to_pairs(k, head_width), v])

    def split(t: Tensor) -> Sequence[Tensor]:
        q, k, v = t.split(sizes)
        return [to_halves(q, head_width), to_halves(k, head_width), v]

    return Entry(ours, tuple(theirs), join, split)


def to_pairs(t: Tensor, head_width: int) -> Tensor:
    """Return rows (N · H, …) in the order in which features 2i and 2i + 1 of a head are rotated together."""
    return t.unflatten(0, (-1, 2, head_width // 2)).transpose(1, 2).flatten(0, 2)


def to_halves(t: Tensor, head_width: int) -> Tensor:
    """Return rows (N · H, …) in the order in which features i and i + H/2 of a head are rotated together."""
    return t.unflatten(0, (-1, head_width // 2, 2)).transpose(1, 2).flatten(0, 2)


def affine(ours: str, theirs: str, *, bias: bool = True) -> list[Entry]:
    """Return the entries of a weight and a bias that are the same on both sides."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}") for part in (("weight", "bias") if bias else ("weight",))]


def without_prefix(entries: Iterable[Entry], prefix: str) -> list[Entry]:
    """Return the entries for a checkpoint of the base model alone, whose names lack the prefix."""
    return [
        Entry(entry.ours, tuple(name.removeprefix(prefix) for name in entry.theirs), entry.join, entry.split)
        for entry in entries
    ]


def load_tensors(model: nn.Module, entries: Sequence[Entry], tensors: dict[str, Tensor], where: str) -> None:
    """Copy a checkpoint's tensors into a model; raise `FileError` with every kind of tensor that does not fit."""
    parameters = dict(model.named_parameters())
    shapes = expected_shapes(parameters, entries)
    problems = differences({name: tuple(t.shape) for name, t in tensors.items()}, shapes)
    whole = sorted(name for name, t in tensors.items() if not t.is_floating_point())
    if not problems and whole:
        got = f"{where}: {whole[0]} is of the type {str(tensors[whole[0]].dtype).removeprefix('torch.')}"
        raise FileError(f"{got}, expected numbers with a fraction: quantised weights are not read")
    if problems:
        raise FileError(f"{where}: does not fit config.json: {'; '.join(problems)}")
    with torch.no_grad():
        for entry in entries:
            parts = [tensors[name].to(parameters[entry.ours].dtype) for name in entry.theirs]
            parameters[entry.ours].copy_(entry.join(parts))
    broken = next((entry for entry in entries if not parameters[entry.ours].isfinite().all()), None)
    if broken is not None:
        raise FileError(f"{where}: {' or '.join(broken.theirs)} holds NaN or infinity; take another copy")


def saved_tensors(model: nn.Module, entries: Sequence[Entry]) -> dict[str, Tensor]:
    """Return a model's parameters as the tensors of a checkpoint."""
    parameters = dict(model.named_parameters())
    return {
        name: part
        for entry in entries
        for name, part in zip(entry.theirs, entry.split(parameters[entry.ours].detach()), strict=True)
    }


def expected_shapes(parameters: dict[str, nn.Parameter], entries: Iterable[Entry]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that a checkpoint for these parameters has."""
    return {
        name: tuple(part.shape)
        for entry in entries
        for name, part in zip(entry.theirs, entry.split(parameters[entry.ours].detach().to("meta")), strict=True)
    }
