"""The processes that train one model together, as torchrun starts them, and what they tell each other.

Every process reads the same batches in the same order and takes its own rows of each, always the same ones, so that no
row of a carried memory skips time. Loss and gradient are means over all processes, weighted by what each predicts: the
same batches train alike however many processes share them. What is told is JSON or tensors, never a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from recollect.core.launch import Launch, launched
from recollect.core.memory import Memory
from recollect.core.serialize import memory_as_bytes, memory_from_bytes
from recollect.core.settings import SettingError
from recollect.core.types import JsonObject
from recollect.training.rendezvous import meet

T = TypeVar("T")


class Alone:
    """A single process, which trains without any other: all that others would be told stays as it is."""

    launch = Launch()

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.launch.size

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's folder, evaluates and reports."""
        return self.launch.is_first

    def wait(self) -> None:
        """Wait until every process is here."""

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do some work on each machine in one process first, and then in the others: they find what it cached."""
        return work()

    def told(self, make: Callable[[], JsonObject]) -> JsonObject:
        """Return what the first process makes, in every process."""
        return make()

    def first(self, number: float) -> float:
        """Return the first process's number."""
        return number

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in any process."""
        return flag

    def mean(self, number: float) -> float:
        """Return the mean over the processes."""
        return number

    def own(self, batch: Any) -> tuple[Any, bool]:
        """Return this process's rows of a batch, and whether it has none."""
        return batch, False

    def own_memory(self, memory: Memory) -> Memory:
        """Return this process's rows of a memory."""
        return memory

    def joined(self, memory: Memory | None) -> Memory | None:
        """Return the memory of all rows in the first process, None in the others."""
        return memory

    def average_gradients(self, parameters: Iterable[Tensor], weight: float) -> None:
        """Replace gradients by their mean over the processes, each weighted."""

    def reseed(self, step: int) -> None:
        """Set the random numbers of an update, different in every process; a single one draws on."""


ALONE = Alone()


class Group(Alone):
    """One of several processes."""

    def __init__(self, launch: Launch, seed: int = 0) -> None:
        self.launch = launch
        self.seed = seed

    def wait(self) -> None:
        """Wait until every process is here."""
        self._summed([0.0])  # on the CPU: a barrier would need to know the device

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do some work in the first process of each machine, and then in the others."""
        if self.launch.local_rank:
            self.wait()
            return work()
        found = work()
        self.wait()
        return found

    def told(self, make: Callable[[], JsonObject]) -> JsonObject:
        """Return what the first process makes, in every process."""
        text = json.dumps(make()).encode() if self.is_first else b""
        size = torch.tensor([len(text)])
        dist.broadcast(size, 0)
        data = torch.zeros(int(size), dtype=torch.uint8)
        if self.is_first:
            data.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(data, 0)
        found: JsonObject = json.loads(data.numpy().tobytes())
        return found

    def first(self, number: float) -> float:
        """Return the first process's number."""
        return self._summed([number if self.is_first else 0.0])

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in any process."""
        return self._summed([float(flag)]) > 0

    def mean(self, number: float) -> float:
        """Return the mean over the processes."""
        return self._summed([number]) / self.size

    def own(self, batch: Any) -> tuple[Any, bool]:
        """Return this process's rows of a batch, and whether it has none: the batch has fewer than there are processes.

        Raises a `SettingError` for a batch that cannot be divided along axis 0.
        """
        sizes = {len(leaf) if leaf.dim() else 0 for leaf in tree_leaves(batch)}
        if len(sizes) != 1:
            found = ", ".join(map(str, sorted(sizes)))
            raise SettingError(
                f"a batch has tensors of {found} rows, expected one number: axis 0 must be the batch to share it among "
                f"{self.size} processes; train in one process"
            )
        rows = self._rows(sizes.pop())
        return tree_map(lambda t: t[rows], batch), rows.start == rows.stop

    def own_memory(self, memory: Memory) -> Memory:
        """Return this process's rows of a memory."""
        return memory.select(self._rows(memory.batch_size))

    def joined(self, memory: Memory | None) -> Memory | None:
        """Return the memory of all rows in the first process, None in the others."""
        if memory is None:
            return None
        data = torch.frombuffer(bytearray(memory_as_bytes(memory)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(data)]))
        longest = max(map(int, sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = data
        gathered = [torch.empty_like(padded) for _ in sizes] if self.is_first else None
        dist.gather(padded, gathered, dst=0)
        if gathered is None:
            return None
        parts = [memory_from_bytes(t[: int(n)].numpy().tobytes()) for t, n in zip(gathered, sizes, strict=True)]
        return type(parts[0]).cat(parts)

    def average_gradients(self, parameters: Iterable[Tensor], weight: float) -> None:
        """Replace gradients by their mean over the processes, each weighted: one message holds all.

        A parameter without a gradient counts as zero; where it has none in any process, it keeps none.
        """
        trained = [p for p in parameters if p.requires_grad]
        has = [float(p.grad is not None) for p in trained]
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        flat = torch.cat([*(t.flatten() for t in parts), trained[0].new_tensor(has)])
        flat[: -len(has)] *= weight / self.size
        dist.all_reduce(flat)
        *means, counts = flat.split([*(p.numel() for p in trained), len(has)])
        for p, part, mean, count in zip(trained, parts, means, counts.tolist(), strict=True):
            if count:
                p.grad = part.copy_(mean.view_as(p))

    def reseed(self, step: int) -> None:
        """Set the random numbers of an update by its number: after a restart they are drawn as if none was lost."""
        words = np.random.SeedSequence([self.seed, step, self.launch.rank]).generate_state(2)
        torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)

    def _rows(self, count: int) -> slice:
        rank = self.launch.rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def _summed(self, numbers: list[float]) -> float:
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)


def join(device: torch.device, seed: int) -> Alone:
    """Return the processes that torchrun started, of which this is one; `ALONE` without torchrun.

    Raises a `SettingError` where the others are not found.
    """
    launch = launched()
    if launch.size == 1:
        return ALONE
    if not dist.is_initialized():
        meet(launch, device)
    return Group(launch, seed)


def is_lost_peer(error: RuntimeError) -> bool:
    """Return whether an error says that another process does not answer: of gloo it has no type of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()
