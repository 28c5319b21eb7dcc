"""The prompts of a continuous batch: read a chunk at a time, so that rows that are being continued do not wait long.

How many symbols are read at once follows the time that they take, between FEWEST and MOST. Where memories do not
lengthen, prompts of different length are read together as far as the shortest goes, then those that are left: rows of a
rectangle need no mask, with which recurrent kernels are half as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.generation.prefill import CHUNK, Model, full_precision
from recollect.generation.request import Ticket

FEWEST, MOST = 256, 4096  # symbols that are read at once
WIDTH = 64  # symbols of a prompt at least, where it has so many: rows of few symbols are read slowly
GRAIN = 16  # longer rectangles have a multiple of so many steps: oneDNN keeps code for every shape that it has met
LOGITS = 1 << 25  # elements of the logits of all symbols that are read at once, about
PATIENCE = 0.1  # seconds that other rows may wait, about


@dataclass(eq=False)
class Prompt:
    """A request whose prompt is being read."""

    ticket: Ticket
    left: Tensor  # (T,) ids that are still to be read
    memory: Memory | None  # one row; None: nothing was read
    logits: Tensor | None  # (1, V)


class LivePrompts:
    """The prompts that are being read, in turn."""

    def __init__(self, model: Model, device: torch.device, clock: Callable[[], float]) -> None:
        self.model = model
        self.device = device
        self.clock = clock
        self.is_growing = model.growth == "linear"  # its memory is copied with every call: fewer calls are better
        self.unread: list[Prompt] = []
        self.most = max(FEWEST, min(MOST, LOGITS // model.width_out))
        self.cells = self.most  # symbols that are read at once now

    def add(self, ticket: Ticket) -> None:
        """Add a request's prompt."""
        request = ticket.request
        logits = None if request.logits is None else full_precision(request.logits.to(self.device))
        self.unread.append(Prompt(ticket, request.prompt, request.memory, logits))

    def tickets(self) -> list[Ticket]:
        """Return the requests whose prompts are not read."""
        return [one.ticket for one in self.unread]

    def drop(self, tickets: set[Ticket]) -> list[Ticket]:
        """Forget the prompts of some requests, and return those that were here."""
        gone = [one.ticket for one in self.unread if one.ticket in tickets]
        self.unread = [one for one in self.unread if one.ticket not in tickets]
        return gone

    def read(self, is_awaited: bool) -> tuple[list[Prompt], list[tuple[Prompt, str]]]:
        """Read a chunk of some prompts; return the prompts that are read, and those that failed with the reason.

        `is_awaited`: rows are being continued, and wait.
        """
        group = [one for one in self.unread if len(one.left)][: self.cells // WIDTH]
        failed = self._read_group(group, is_awaited) if group else []
        lost = {one for one, _ in failed}
        done = [one for one in self.unread if not len(one.left) and one not in lost]
        first, last = (
            [one for one in self.unread if len(one.left) and one not in lost and (one in group) is was_read]
            for was_read in (False, True)
        )
        self.unread = first + last
        return done, failed

    def _read_group(self, group: list[Prompt], is_awaited: bool) -> list[tuple[Prompt, str]]:
        width = min(CHUNK, self.cells // len(group))
        began = self.clock()
        failed = self._read_one_by_one(group, width)
        self._follow(self.clock() - began, is_awaited)
        return failed

    def _read_one_by_one(self, group: list[Prompt], width: int) -> list[tuple[Prompt, str]]:
        """Read all together or, where that fails, one after the other: one bad prompt must not end the others."""
        try:
            self._read_together(group, width)
        except Exception as error:
            if len(group) == 1:
                return [(group[0], str(error))]
            return list(chain.from_iterable(self._read_one_by_one([one], width) for one in group))
        return []

    def _follow(self, seconds: float, is_awaited: bool) -> None:
        if seconds > PATIENCE and is_awaited:
            self.cells = max(FEWEST, self.cells // 2)
        elif seconds < PATIENCE / 4:
            self.cells = min(self.most, self.cells * 2)

    def _read_together(self, group: list[Prompt], width: int) -> None:
        """Read up to `width` ids of each prompt: as far as the shortest goes, then on without those that have ended."""
        rows = [(one, one.left[:width]) for one in group]  # with the ids that are read now
        found: list[tuple[Prompt, Memory, Tensor]] = []
        memory = self._joined(group)
        while rows:
            steps = width if self.is_growing else _rectangle(min(len(ids) for _, ids in rows))
            y, memory = self._read_chunk([ids for _, ids in rows], memory, steps)
            rows = [(one, ids[steps:]) for one, ids in rows]
            ended = [i for i, (_, ids) in enumerate(rows) if not len(ids)]
            found += [(rows[i][0], memory.select([i]).settled(), y[[i]]) for i in ended]
            kept = [i for i in range(len(rows)) if i not in ended]
            memory = memory.select(kept) if kept else memory
            rows = [rows[i] for i in kept]
        for one, own, logits in found:  # at the end: where reading fails nothing has changed
            one.left = one.left[width:]
            one.memory, one.logits = own, logits

    def _read_chunk(self, rows: list[Tensor], memory: Memory, width: int) -> tuple[Tensor, Memory]:
        """Read up to `width` ids of each row; return the logits after the last (B, V), and the memory."""
        parts = [ids[:width] for ids in rows]
        counts = torch.tensor([len(part) for part in parts])
        ids = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(self.device)  # (B, T)
        valid = torch.arange(ids.shape[1]) < counts[:, None]
        is_full = bool(valid.all())
        y, after = self.model(ids, memory, valid=None if is_full else valid.to(self.device))
        last = y[torch.arange(len(rows), device=self.device), (counts - 1).to(self.device)]  # (B, V)
        return full_precision(last), after

    def _joined(self, group: list[Prompt]) -> Memory:
        """Return the memories of some prompts as one batch."""
        ids = group[0].left[:0].to(self.device)[None].expand(len(group), 0)
        fresh = [i for i, one in enumerate(group) if one.memory is None]
        if len(fresh) == len(group):
            return self.model.initial_memory(len(group), like=ids)
        for i in fresh:
            group[i].memory = self.model.initial_memory(1, like=ids[:1])
        memories = [one.memory.settled() for one in group if one.memory is not None]
        return type(memories[0]).cat(memories)


def _rectangle(shortest: int) -> int:
    """Return how many steps are read of rows of which the shortest has so many."""
    return shortest if shortest < GRAIN else shortest - shortest % GRAIN
