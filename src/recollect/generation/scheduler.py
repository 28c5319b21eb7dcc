"""Continuous batching: requests of any age and length share one batch, which they join and leave at every step.

    scheduler = Scheduler(model, most=64)
    ticket = scheduler.submit(Request(ids=[1, 2, 3], settings=Settings(tokens=20)))
    while scheduler.is_busy:
        for event in scheduler.tick():
            event.ticket, event.id, event.end

One tick admits requests, reads a chunk of the prompts that wait, and generates one id in every row. A row's ids are
those of `generate` with its settings and number, up to the rounding of a larger batch: each row has its own generator.
The model, of any family, is called through the contract alone: memories are joined by `cat` and `place`, and divided
by `select`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

import torch

from recollect.core.dispatch import ask
from recollect.core.threads import pace
from recollect.core.validate import ContractError, check_ids
from recollect.generation.choice import Choice, Chooser, choose
from recollect.generation.footprint import Footprint
from recollect.generation.live_batch import LiveBatch
from recollect.generation.live_prompts import LivePrompts, Prompt
from recollect.generation.prefill import Model, check_table, home, undisturbed
from recollect.generation.request import End, Event, Request, Spelling, Ticket
from recollect.generation.settings import check_vocabulary

GATHERED = 8  # of so many places one is kept free until prompts for all that are free can be read together


class Full(RuntimeError):
    """More requests wait than the queue holds; the message states how many."""


@dataclass(eq=False)
class LiveRow:
    """A row that is being continued."""

    ticket: Ticket
    number: int  # its place in the request's `numbers`
    chooser: Chooser
    spelling: Spelling
    count: int = 0  # ids generated


class Scheduler:
    """Continues requests in one batch of at most `most` rows; at most `queue` requests wait for a place in it.

    `most_bytes` bounds what the batch takes, where memories lengthen: requests wait until those before them have ended,
    and one that would not even fit alone is refused. `submit` and `Ticket.cancel` may be called from any thread, `tick`
    from one.
    """

    def __init__(
        self,
        model: Model,
        most: int = 64,
        queue: int = 256,
        most_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not model.streams:
            raise ContractError("model", "one that must read a whole sequence at once", "one that streams")
        self.model = model
        self.most = most
        self.queue = queue
        self.most_bytes = most_bytes
        self.clock = clock
        self.modules = list(model.modules())
        self.footprint = Footprint(0, 0) if most_bytes is None else Footprint.of(model)
        self.device = home(model, None)
        self.prompts = LivePrompts(model, self.device, clock)
        self.batch = LiveBatch(model)
        self.waiting: deque[Ticket] = deque()
        self.rows: list[LiveRow | None] = []  # by place in the batch
        self._lock = threading.Lock()

    # ---- callers ---------------------------------------------------------------------------------

    def submit(self, request: Request, note: object = None) -> Ticket:
        """Accept a request; raise a `ContractError` for one that cannot be continued, `Full` where too many wait."""
        self._check(request)
        ticket = Ticket(request, note)
        with self._lock:
            waiting = len(self.waiting) - max(0, self.most - self._taken())  # the others have a place at the next tick
            if waiting >= self.queue:
                raise Full(f"{waiting} requests wait, at most {self.queue} may")
            self.waiting.append(ticket)
        return ticket

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or is being continued."""
        return bool(self.waiting or self.prompts.unread or self.active)

    @property
    def active(self) -> int:
        """The number of rows that are being continued."""
        return sum(row is not None for row in self.rows)

    def _taken(self) -> int:
        """Return the number of places in the batch that are taken, by rows or by prompts that are read."""
        return self.active + sum(len(one.request.numbers) for one in self.prompts.tickets())

    def _check(self, request: Request) -> None:
        if not 1 <= len(request.numbers) <= self.most:
            raise ContractError("n", len(request.numbers), f"1 to {self.most}, the rows of a batch")
        if request.keeps and len(request.numbers) != 1:
            raise ContractError("n", len(request.numbers), "1, where the memory is kept")
        ids = request.prompt
        if len(ids) == 0 and request.logits is None:
            raise ContractError("prompt", "no symbols", "at least one, or a memory with its logits")
        check_ids(ids, getattr(self.model, "vocab_size", self.model.width_out), "prompt")
        check_vocabulary(request.settings, self.model.width_out)
        check_table(self.modules, request.memory, [len(ids)], request.settings.tokens)
        needed = self.footprint.bytes_of(len(request.numbers), request.steps)
        if self.most_bytes is not None and needed > self.most_bytes:
            got = f"{request.steps} symbols in all, which take {needed} bytes"
            raise ContractError("prompt and tokens", got, f"at most {self.most_bytes} bytes; ask for fewer")

    # ---- one tick --------------------------------------------------------------------------------

    def tick(self) -> list[Event]:
        """Admit, read prompts, generate one id in every row; return what happened.

        A fault ends every request: the ends that were already found are returned too, so that nobody waits for ever.
        """
        pace()
        events: list[Event] = []
        try:
            with undisturbed(self.modules), ask("linear_maps", self.device.type) or nullcontext():
                self._give_up(events)
                self._admit()
                self._read_prompts(events)
                self._step(events)
        except Exception as error:
            events += self.stop("broken", str(error))
        return events

    def stop(self, end: End = "cancelled", problem: str = "") -> list[Event]:
        """End every request now, and return their ends."""
        events: list[Event] = []
        self._end(dict.fromkeys(self._tickets(), end), events, problem)
        return events

    def _tickets(self) -> list[Ticket]:
        with self._lock:
            tickets = list(self.waiting)
        return [*tickets, *self.prompts.tickets(), *(row.ticket for row in self.rows if row is not None)]

    def _give_up(self, events: list[Event]) -> None:
        """End the requests that were cancelled, or whose time is over."""
        now = self.clock()
        found = {ticket: _end_of(ticket, now) for ticket in self._tickets()}
        late = {ticket: end for ticket, end in found.items() if end is not None}
        if late:
            self._end(late, events)

    def _end(self, ends: Mapping[Ticket, End], events: list[Event], problem: str = "") -> None:
        """End requests, wherever they are."""
        with self._lock:
            gone = [ticket for ticket in self.waiting if ticket in ends]
            self.waiting = deque(ticket for ticket in self.waiting if ticket not in ends)
        gone += self.prompts.drop(set(ends))
        for ticket in gone:
            _end_unread(ticket, ends[ticket], events, problem)
        places = [i for i, row in enumerate(self.rows) if row is not None and row.ticket in ends]
        for i in places:
            row = self.rows[i]
            assert row is not None
            events.append(Event(row.ticket, row.number, row.spelling.rest(), end=ends[row.ticket], problem=problem))
        self._leave(places)

    def _admit(self) -> None:
        """Let requests leave the queue as long as there are places, and bytes."""
        rows = self._taken()
        if not self.waiting or self._should_gather(self.most - rows):
            return
        here = {*self.prompts.tickets(), *(row.ticket for row in self.rows if row is not None)}
        longest = max((ticket.request.steps for ticket in here), default=0)
        with self._lock:
            while self.waiting:
                request = self.waiting[0].request
                rows += len(request.numbers)
                longest = max(longest, request.steps)
                if rows > self.most or (here and not self._fits(rows, longest)):
                    return
                here.add(self.waiting[0])
                self.prompts.add(self.waiting.popleft())

    def _should_gather(self, free: int) -> bool:
        """Return whether more places should be free first: prompts that are read together are read faster.

        Only while others are continued, and more rows wait than there are places.
        """
        if self.active == 0 or free >= self.most // GATHERED:
            return False
        with self._lock:
            return sum(len(ticket.request.numbers) for ticket in islice(self.waiting, free + 1)) > free

    def _fits(self, rows: int, steps: int) -> bool:
        return self.most_bytes is None or self.footprint.bytes_of(rows, steps) <= self.most_bytes

    # ---- prompts ---------------------------------------------------------------------------------

    def _read_prompts(self, events: list[Event]) -> None:
        """Read the next chunk of the prompts, and let those that are read join the batch."""
        done, failed = self.prompts.read(is_awaited=self.active > 0)
        for one, problem in failed:
            _end_unread(one.ticket, "broken", events, problem)
        joining = [one for one in done if one.ticket.request.settings.tokens > 0]
        for one in done:
            if one not in joining:
                _finish_without_ids(one, events)
        if joining:
            try:
                self._join(joining)
            except Exception as error:
                if len(self.rows) != len(self.batch):  # its empty places were dropped before it failed
                    self.rows = [row for row in self.rows if row is not None]
                for one in joining:
                    _end_unread(one.ticket, "broken", events, str(error))

    def _join(self, joining: Sequence[Prompt]) -> None:
        """Let requests join the batch, each with its rows."""
        memories = []
        logits = []
        rows = []
        for one in joining:
            assert one.memory is not None
            assert one.logits is not None
            count = len(one.ticket.request.numbers)
            memories.append(one.memory if count == 1 else one.memory.select([0] * count))
            logits.append(one.logits.expand(count, -1))
            rows += [_row(one.ticket, number) for number in range(count)]
        joined = type(memories[0]).cat([memory.settled() for memory in memories])
        kept, places = self.batch.join(joined, torch.cat(logits))
        self.rows = [self.rows[i] for i in kept] + [None] * (len(self.batch) - len(kept))
        for i, row in zip(places, rows, strict=True):
            self.rows[i] = row

    # ---- steps -----------------------------------------------------------------------------------

    def _step(self, events: list[Event]) -> None:
        """Choose one id in every row, and read them."""
        if not self.active:
            return
        try:
            self._choose_and_read(events)
        except Exception as error:  # memory that is not there, say: the requests end, the server does not
            self._break_all(str(error), events)
        kept = self.batch.compact()
        if kept is not None:
            self.rows = [self.rows[i] for i in kept]

    def _choose_and_read(self, events: list[Event]) -> None:
        assert self.batch.logits is not None
        choices = choose(self.batch.logits, [None if row is None else row.chooser for row in self.rows])
        ended: dict[int, Event] = {}
        for i, (row, choice) in enumerate(zip(self.rows, choices, strict=True)):
            if row is None or choice is None:
                continue
            event = _event(row, choice)
            if event.end is None:
                events.append(event)
            else:
                ended[i] = event
        kept = [i for i, event in ended.items() if event.ticket.request.keeps and event.end != "broken"]
        self._leave([i for i in ended if i not in kept])
        events += [event for i, event in ended.items() if i not in kept]
        if self.active:
            ids = [0 if choice is None else max(choice.id, 0) for choice in choices]
            self.batch.read(ids)
        for i in kept:
            memory, logits = self.batch.row(i)
            events.append(ended[i]._replace(memory=memory, logits=logits))
        self._leave(kept)

    def _break_all(self, problem: str, events: list[Event]) -> None:
        reported = {(event.ticket, event.row) for event in events if event.end is not None}
        for row in self.rows:
            if row is not None and (row.ticket, row.number) not in reported:
                events.append(Event(row.ticket, row.number, end="broken", problem=problem))
        self._leave([i for i, row in enumerate(self.rows) if row is not None])

    def _leave(self, places: Iterable[int]) -> None:
        places = list(places)
        for i in places:
            row = self.rows[i]
            assert row is not None
            row.ticket.open_rows -= 1
            self.rows[i] = None
        self.batch.leave(places)
        self.rows = self.rows[: len(self.batch)]


def _end_unread(ticket: Ticket, end: End, events: list[Event], problem: str = "") -> None:
    """End a request whose prompt is not read."""
    events += [Event(ticket, row, end=end, problem=problem) for row in range(len(ticket.request.numbers))]
    ticket.open_rows = 0


def _finish_without_ids(one: Prompt, events: list[Event]) -> None:
    """End a request that asks for no ids: its prompt is read."""
    ticket = one.ticket
    memory, logits = (one.memory, one.logits) if ticket.request.keeps else (None, None)
    for number in range(len(ticket.request.numbers)):
        events.append(Event(ticket, number, end="length", memory=memory, logits=logits))
    ticket.open_rows = 0


def _row(ticket: Ticket, number: int) -> LiveRow:
    request = ticket.request
    seen = [] if request.settings.repetition_penalty == 1 else request.prompt.tolist()
    chooser = Chooser(request.settings, request.numbers[number], seen, request.alternatives)
    return LiveRow(ticket, number, chooser, Spelling(request))


def _event(row: LiveRow, choice: Choice) -> Event:
    """Return what a row's choice means; a decoder that fails ends its own row alone."""
    if choice.id < 0:
        return Event(row.ticket, row.number, end="broken", problem="the logits are NaN, or leave nothing to choose")
    try:
        return _spelled(row, choice)
    except Exception as error:
        return Event(row.ticket, row.number, end="broken", problem=str(error))


def _spelled(row: LiveRow, choice: Choice) -> Event:
    """Return a choice with its text, and perhaps the end."""
    row.count += 1
    settings = row.ticket.request.settings
    end: End | None = None
    text = ""
    if choice.id in settings.stop:
        end = "stop"
    else:
        text, is_stopped = row.spelling.step(choice.id)
        end = "stop" if is_stopped else "length" if row.count >= settings.tokens else None
    text += row.spelling.rest() if end is not None else ""
    return Event(row.ticket, row.number, text, choice.id, choice.log_p, choice.alternatives, end)


def _end_of(ticket: Ticket, now: float) -> End | None:
    if ticket.is_cancelled:
        return "cancelled"
    due = ticket.request.due
    return "late" if due is not None and now > due else None
