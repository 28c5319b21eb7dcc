"""The example that a law is checked on, the variants of reading it, and the error of a broken law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.record import readable
from recollect.core.types import AnyLayer

Layer: TypeAlias = AnyLayer


@dataclass(frozen=True)
class Example:
    """One case to check a law on.

    A past that is read first, so that memories are not initial ones; new steps; how many of them are valid in each row;
    and where the sequence is cut into chunks.
    """

    past: Tensor  # (B, P, …) read first, all valid
    x: Tensor  # (B, T, …)
    lengths: tuple[int, ...]  # valid steps of each row of x
    cuts: tuple[int, ...] = ()  # 0 < cut < T, ascending
    memory: Memory | None = None  # before the past; None: the initial one
    thorough: bool = True  # False: not read step by step and differentiated, as all long examples but the last

    @property
    def valid(self) -> Tensor:
        """The mask (B, T)."""
        lengths = torch.tensor(self.lengths, dtype=torch.long, device=self.x.device)
        return torch.arange(self.x.shape[1], device=self.x.device) < lengths[:, None]

    @property
    def mask(self) -> Tensor | None:
        """What a caller would pass as `valid`: None where no row is padded, so that both variants are checked."""
        return None if all(n == self.x.shape[1] for n in self.lengths) else self.valid

    def start(self, layer: Layer) -> Memory:
        """Return the memory after the past."""
        memory = self.memory if self.memory is not None else layer.initial_memory(len(self.x), like=self.x)
        after: Memory = layer(self.past, memory)[1]
        return after

    def row(self, b: int) -> Example:
        """Return the example of one row, cut to its valid steps."""
        memory = None if self.memory is None else self.memory.select([b])
        n = self.lengths[b]
        return replace(self, past=self.past[b : b + 1], x=self.x[b : b + 1, :n], lengths=(n,), cuts=(), memory=memory)

    def __str__(self) -> str:
        b, t = self.x.shape[:2]
        text = f"B={b}, T={t}, lengths {list(self.lengths)}, after {self.past.shape[1]} earlier steps"
        return text + (f", cut at {list(self.cuts)}" if self.cuts else "")


class LawBroken(AssertionError):
    """A layer breaks the contract: which law, how, and the smallest example that was found.

    >>> class Leaks(rc.GRU):
    ...     def forward(self, x, memory=None, *, valid=None):
    ...         y, memory = super().forward(x, memory, valid=valid)
    ...         return y + x.sum(), memory
    >>> rc.check_layer(Leaks(4, 4).double())
    Traceback (most recent call last):
    recollect.laws.trial.LawBroken: ...
    """

    def __init__(self, law: str, detail: str, example: Example) -> None:
        super().__init__(f"{law}: {detail}; smallest example: {example}")
        self.law = law
        self.detail = detail
        self.example = example


@dataclass(frozen=True)
class Trial:
    """A law's name, example and tolerance, with the comparisons."""

    law: str
    example: Example
    tol: float

    def fail(self, detail: str) -> None:
        """Raise `LawBroken`."""
        raise LawBroken(self.law, detail, self.example)

    def same(self, what: str, a: Tensor, b: Tensor, size: Tensor | None = None) -> None:
        """Require equal tensors, relative to 1 + `size`, by default the size of each value."""
        if a.shape != b.shape:
            self.fail(f"{what} have shapes {tuple(a.shape)} and {tuple(b.shape)}")
        good = (a == b) | ((a - b).abs() <= self.tol * (1 + (b.abs() if size is None else size)))
        if not bool(good.all()):
            place = tuple((~good).nonzero()[0].tolist())
            self.fail(f"{what} differ first at {place}: {a[place].item():.6g} against {b[place].item():.6g}")

    def same_memory(self, what: str, a: Memory, b: Memory) -> None:
        """Require equal memories."""
        if not a.equals(b, self.tol):
            names = [
                n for n, t in a.settled().tensors().items() if not _close(t, b.settled().tensors().get(n), self.tol)
            ]
            self.fail(f"{what} differ in {', '.join(names) or type(a).__name__}")

    def same_gradients(self, what: str, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        """Require equal gradients, relative to the largest: the entries are sums whose terms may cancel."""
        for name in a:
            size = b[name].abs().max() if b[name].numel() else None
            self.same(f"{what}, gradients of {name},", a[name], b[name], size)


def _close(a: Tensor, b: Tensor | None, tol: float) -> bool:
    if b is None or a.shape != b.shape or not a.is_floating_point():
        return b is not None and torch.equal(a, b)
    return bool(((a == b) | ((a - b).abs() <= tol * (1 + b.abs()))).all())


# ---- reading -----------------------------------------------------------------------------------------

Read: TypeAlias = Callable[[Layer, Tensor, Memory, Tensor | None], tuple[Tensor, Memory]]


def whole(layer: Layer, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
    """Read at once."""
    return layer(x, memory, valid=valid)


def without_memory(layer: Layer, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
    """Read at once, without passing a memory."""
    return layer(x, valid=valid)


def from_initial(layer: Layer, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
    """Read at once from the initial memory, which may be learned."""
    return layer(x, layer.initial_memory(len(x), like=x), valid=valid)


def in_chunks(cuts: tuple[int, ...]) -> Read:
    """Return a function that reads in chunks up to each cut, carrying the memory."""

    def read(layer: Layer, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        outputs = []
        for start, stop in pairwise((0, *cuts, x.shape[1])):
            y, memory = layer(x[:, start:stop], memory, valid=None if valid is None else valid[:, start:stop])
            outputs.append(y)
        return torch.cat(outputs, dim=1), memory

    return read


def in_readable_form(layer: Layer, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
    """Read at once, in the readable form."""
    with readable():
        return layer(x, memory, valid=valid)


@contextmanager
def in_training(layer: Layer) -> Iterator[dict[str, Tensor]]:
    """Set a layer to training mode and yield copies of its buffers; buffers and mode are restored afterwards."""
    was_training = layer.training
    buffers = {name: b.clone() for name, b in layer.named_buffers()}
    layer.train()
    try:
        yield buffers
    finally:
        layer.train(was_training)
        for name, b in layer.named_buffers():
            if not torch.equal(b, buffers[name]):
                b.copy_(buffers[name])


@dataclass
class NoticedDraws:
    """Whether random numbers were drawn."""

    any: bool = False


@contextmanager
def noticed_draws(device: torch.device) -> Iterator[NoticedDraws]:
    """Record whether random numbers are drawn in the block, and restore the generators."""
    draws = NoticedDraws()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        before = _random_states(device)
        yield draws
        draws.any = not all(map(torch.equal, before, _random_states(device)))


def _random_states(device: torch.device) -> list[Tensor]:
    states: list[Tensor] = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def poisoned(x: Tensor, valid: Tensor) -> Tensor:
    """Return x with NaN (for ids: another id) where it is not valid."""
    if x.is_floating_point():
        return x.masked_fill(~valid.unsqueeze(-1), torch.nan)
    real = valid.reshape(*valid.shape, *[1] * (x.dim() - 2))  # a step may have several ids
    return torch.where(real, x, 0 if x.numel() == 0 else x.max())


def gradients(layer: Layer, read: Read, x: Tensor, memory: Memory, valid: Tensor | None) -> dict[str, Tensor]:
    """Return the gradients of a fixed weighted sum of outputs and memory, by parameters, inputs and given memory."""
    memory = memory.detach()
    leaves: dict[str, Tensor] = {f"parameter {n}": p for n, p in layer.named_parameters() if p.requires_grad}
    leaves |= {f"memory.{n}": t.requires_grad_() for n, t in memory.tensors().items() if t.is_floating_point()}
    if x.is_floating_point():
        x = x.detach().clone().requires_grad_()
        leaves["x"] = x
    y, after = read(layer, x, memory, valid)
    results = [y, *(t for t in after.settled().tensors().values() if t.is_floating_point())]
    total = torch.zeros((), dtype=y.dtype, device=y.device)
    for t in results:  # with uneven weights, so that no two errors cancel
        weights = torch.cos(torch.arange(t.numel(), dtype=t.dtype, device=t.device)).reshape(t.shape)
        total = total + (t * weights).sum()
    if not total.requires_grad:
        return {}
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(leaves.items(), found, strict=True)}
