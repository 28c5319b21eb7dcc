"""What a continuous batch is asked for, and what it answers: requests, tickets, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.placement import steps_read
from recollect.generation.continuation import StopStrings, TextCodec
from recollect.generation.prefill import Ids
from recollect.generation.settings import Settings

End: TypeAlias = Literal["stop", "length", "cancelled", "late", "broken"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """One prompt to continue, in one row or in several.

    `ids` are read after `memory` (one row) where that is given; they may then be empty, with the `logits` (1, V) that
    go with the memory. Each of `numbers` is a row: it gets the ids that `generate` gives to the row of this number. A
    row also ends where one of the strings `stop` is complete; `codec` decodes for that, and for the events' texts.
    `keeps`: the last event carries the memory after all ids, and its logits. `due`: when the request is given up, by
    the scheduler's clock.
    """

    ids: Ids
    settings: Settings
    numbers: Sequence[int] = (0,)
    memory: Memory | None = None
    logits: Tensor | None = None
    keeps: bool = False
    alternatives: int | None = None  # likeliest ids reported with each id's log p; None: no log p
    codec: TextCodec | None = None
    after: str = ""  # the text that is continued, of which the decoder knows the end
    stop: Sequence[str] = ()
    due: float | None = None

    @cached_property
    def prompt(self) -> Tensor:
        """The ids (T,) that are read, the settings' `begin` first."""
        ids = torch.as_tensor(self.ids, dtype=torch.long)
        begin = self.settings.begin
        return ids if begin is None else torch.cat([torch.tensor([begin]), ids])

    @cached_property
    def steps(self) -> int:
        """How many steps its rows will have read in the end."""
        before = 0 if self.memory is None else max(steps_read(self.memory), default=0)
        return before + len(self.prompt) + self.settings.tokens


@dataclass(eq=False)
class Ticket:
    """A request that was accepted. `note` is the caller's own."""

    request: Request
    note: Any = None
    is_cancelled: bool = False
    open_rows: int = field(init=False)  # rows that have not ended

    def __post_init__(self) -> None:
        self.open_rows = len(self.request.numbers)

    def cancel(self) -> None:
        """End all rows before the next step; may be called from any thread."""
        self.is_cancelled = True


class Event(NamedTuple):
    """One id of one row, or the row's end, or both."""

    ticket: Ticket
    row: int  # place in the request's `numbers`
    text: str = ""
    id: int = -1  # −1: none
    log_p: float = 0.0
    alternatives: tuple[tuple[int, float], ...] = ()
    end: End | None = None
    problem: str = ""  # of a row that is broken
    memory: Memory | None = None
    logits: Tensor | None = None


class Spelling:
    """The text of one row: decoded id by id, and ended by stop strings."""

    def __init__(self, request: Request) -> None:
        self._decoder = None if request.codec is None else request.codec.stream(request.after)
        self._stops = StopStrings(request.stop)

    def step(self, id: int) -> tuple[str, bool]:
        """Read an id, and return the text that is certain with it, and whether a stop string is complete."""
        if self._decoder is None:
            return "", False
        text = self._stops.step(self._decoder.step(id) or "")
        return text, self._stops.found

    def rest(self) -> str:
        """Return the text that was held back: the row has ended."""
        return self._stops.rest()


Deliver: TypeAlias = Callable[[list[Event]], None]
