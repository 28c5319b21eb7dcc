"""Several walks on one chip: layers beside each other, layers one above the other, and products beside a walk.

Time is cut into pieces. Where layers lie above each other, one reads a piece while the next reads the piece before
it, as a wave; on the way back the large products of a piece are made while the walk goes on with the piece before it.
Which task waits for which is said here, how it waits is the business of `lanes.py`, and how many walks run at once and
in pieces of how many steps that of whoever gives a `Way`. The results are those of one walk after the other, but for
the order in which products of weights are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.kernels.finishing import WeightProducts, weight_gradients
from recollect.kernels.lanes import Schedule, Task, perform
from recollect.kernels.launching import Backward, Forward, Machine, Seen
from recollect.kernels.plans import Plan
from recollect.kernels.preparing import prepare_backward, prepare_forward
from recollect.kernels.recurrences import Given
from recollect.kernels.rooms import Extent, Layout, Room

Found = tuple[Tensor | None, Tensor, Tensor | None]  # y (B, T, H), the last h and c (B, H)
FIELDS = len(Given._fields)


class Way(NamedTuple):
    """How walks are laid over a chip."""

    machine: Machine
    plan: Plan
    at_once: int  # walks
    size: int  # steps of a piece


class Setting(NamedTuple):
    """What several layers of the same shape have in common."""

    dtype: torch.dtype  # of products
    ahead: Way
    back: Way | None  # where gradients are wanted
    is_pile: bool  # each layer reads what the one before it gives, and has no x of its own
    both_ways: bool = False  # the second of two layers reads the first one's x, from the last step to the first


class Reading:
    """One layer's way forward: for each piece the product W_ih x, then the walk."""

    def __init__(
        self,
        setting: Setting,
        extent: Extent,
        given: Given,
        lengths: Tensor | None,
        x: Tensor | None,
        *,
        from_end: bool,
    ) -> None:
        self.way, self.extent, self.lengths, self.from_end = setting.ahead, extent, lengths, from_end
        self.rows = _Rows(extent.steps, extent.batch, self.way.size, from_end)
        self.keeps = setting.back is not None
        ahead = (self.way.machine, self.way.plan, given, extent, self.rows.pieces)
        self.rooms = _, kept = prepare_forward(*ahead, keeps=self.keeps)
        rows, columns = extent.steps * extent.batch, extent.columns
        self.x = kept.matrix("by_time", rows, extent.width) if x is None else x  # (T·B, D)
        self.weight = kept.crossed("slotted", columns, extent.width)  # (D, H·S)
        self.logits = kept.matrix("gates", rows, columns)  # (T·B, H·S)

    @cached_property
    def walk(self) -> Forward:
        """The walk itself: made when it is wanted, so that the first product is on its way by then."""
        machine, plan, _, size = self.way
        how: Any = {"keeps": self.keeps, "size": size, "from_end": self.from_end}
        return Forward(machine, plan, self.extent, self.rooms, self.lengths, **how)

    @property
    def y(self) -> Tensor:
        """All outputs, in the order of x (T, B, H)."""
        return after_steps(self.walk.seen.y, from_end=self.from_end)

    def multiply(self, piece: int) -> None:
        """Find a piece's logits, as far as they hang on x."""
        torch.mm(self.rows.of(self.x, piece), self.weight, out=self.rows.of(self.logits, piece))

    def step(self, piece: int) -> None:
        """Walk through a piece."""
        self.walk.walk(piece)

    @property
    def kept(self) -> tuple[Tensor | None, ...]:
        """All of `Kept` but W_hh."""
        x = None if self.extent.has_x else self.x
        return self.rooms[1].memory, self.walk.seen.y, self.lengths, x

    def found(self, given: Given, like: Tensor, *, has_y: bool) -> Found:
        """What the caller wants of it, in the dtypes of what was given; where no state was, in that of `like`."""
        h = self.walk.last("last_h", (like if given.h is None else given.h).dtype)
        c = self.walk.last("last_c", (like if given.c is None else given.c).dtype) if self.extent.has_cells else None
        return self.y.transpose(0, 1) if has_y else None, h, c


class Kept(NamedTuple):
    """What a layer keeps for the way back."""

    memory: Tensor  # of the room that is kept
    y: Tensor  # (T + 1, B, H)
    lengths: Tensor | None
    x: Tensor | None  # (T·B, D), where another layer has laid it out
    w_hh: Tensor


class Returning:
    """One layer's way back: for each piece the walk, then the products that it allows."""

    def __init__(
        self,
        way: Way,
        extent: Extent,
        layout: Layout,
        kept: Kept,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        wanted: Any,
        *,
        is_above: bool,
        from_end: bool,
    ) -> None:
        machine, plan, _, size = self.way = way
        self.extent, self.kept, self.wanted, self.from_end = extent, kept, wanted, from_end
        self.rows = _Rows(extent.steps, extent.batch, size, from_end)
        self.room = prepare_backward(machine, plan, kept.w_hh, extent, wanted, self.rows.pieces)
        self.seen = Seen(Room(kept.memory, layout), kept.y, kept.lengths)
        self.walk = Backward(machine, plan, extent, self.seen, self.room, d_y, d_last, size=size, from_end=from_end)
        shape = (extent.steps, extent.batch, extent.width)
        self.d_x = kept.y.new_empty(shape) if is_above or wanted.x else None

    def step(self, piece: int) -> None:
        """Walk back through a piece."""
        self.walk.walk(piece)

    def pass_down(self, piece: int) -> None:
        """Find a piece's dx."""
        if self.d_x is not None:
            weight = self.seen.kept.matrix("slotted", self.extent.columns, self.extent.width)
            torch.mm(self.rows.of(self.flat, piece), weight, out=self.rows.of(self.d_x.flatten(0, 1), piece))

    def weigh(self, piece: int) -> None:
        """Add a piece's share of dW."""
        self.products.add(*(self.rows.of(t, piece) for t in (self.flat, self.x, self.before)))

    @cached_property
    def flat(self) -> Tensor:
        """The gradients at all logits (T·B, H·S)."""
        return self.room.matrix("d_logits", self.extent.steps * self.extent.batch, self.extent.columns)

    @cached_property
    def x(self) -> Tensor:
        """What was read (T·B, D)."""
        shape = (self.extent.steps * self.extent.batch, self.extent.width)
        return self.seen.kept.matrix("by_time", *shape) if self.kept.x is None else self.kept.x

    @cached_property
    def before(self) -> Tensor:
        """The states that steps began with (T·B, H)."""
        return before_steps(self.kept.y, from_end=self.from_end).flatten(0, 1)

    @cached_property
    def products(self) -> WeightProducts:
        """Place for the gradients of the weights."""
        columns, width, units = self.extent.columns, self.extent.width, self.extent.units
        part = self.room.matrix if self.rows.pieces == 1 else self.room.floats
        ih = part("product_ih", columns, width) if self.wanted.w_ih else None
        return WeightProducts(ih, part("product_hh", columns, units) if self.wanted.w_hh else None)

    def found(self) -> list[Tensor | None]:
        """All gradients, in the order of `Given`, where they are wanted."""
        extent, wanted = self.extent, self.wanted
        d_bias = self.room.floats("d_sums", self.rows.pieces * extent.pairs, extent.columns)
        shape = (extent.width, extent.units)
        d_weights = weight_gradients(self.way.machine, self.way.plan, self.products, d_bias, shape, wanted)
        d_x = self.d_x.transpose(0, 1) if self.d_x is not None and wanted.x else None
        d_h = self.walk.d_first("d_hidden", wanted.h) if wanted.h else None
        return [d_x, d_h, self.walk.d_first("d_cell", wanted.c) if wanted.c else None, *d_weights]


def after_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Of all states (T + 1, B, H), those that each step has led to (T, B, H)."""
    return states[:-1] if from_end else states[1:]


def before_steps(states: Tensor, *, from_end: bool) -> Tensor:
    """Of all states (T + 1, B, H), those that each step has begun with (T, B, H)."""
    return states[1:] if from_end else states[:-1]


class _Rows(NamedTuple):
    """Where a piece lies among all rows of all steps (T·B)."""

    steps: int
    batch: int
    size: int
    from_end: bool  # the first piece is the last in time

    @property
    def pieces(self) -> int:
        return -(-self.steps // self.size)

    def of(self, t: Tensor, piece: int) -> Tensor:
        if self.size >= self.steps:
            return t
        start, end = piece * self.size, min(self.steps, (piece + 1) * self.size)
        if self.from_end:
            start, end = self.steps - end, self.steps - start
        return t[start * self.batch : end * self.batch]


def urgency(at_once: int) -> list[int]:
    """Lanes: of the walks, of the products that a walk waits for, and of those that can wait."""
    return [2] * at_once + [1, 0]


class Do(NamedTuple):
    """A method of a `Reading` or `Returning`, for a layer and a piece."""

    name: str
    layer: int
    piece: int


@lru_cache(maxsize=1024)
def forward_tasks(layers: int, pieces: int, at_once: int, *, is_pile: bool) -> Schedule:
    """List the ways forward: a piece's product, which in a pile waits for the layer below, then its walk.

    The very first product is not among them: it is asked for before lanes part, which takes its time.
    """
    tasks: list[Task] = []
    walks: dict[tuple[int, int], Task] = {}
    beside = at_once if layers * pieces > 1 else 0
    for wave in _waves(layers, pieces, is_pile=is_pile):
        for layer, piece in wave:
            below = (walks[layer - 1, piece],) if is_pile and layer else ()
            product = [Task(beside, Do("multiply", layer, piece), below)] if walks else []
            before = [walks[layer, piece - 1]] if piece else []
            walk = Task(len(walks) % at_once, Do("step", layer, piece), (*product, *before))
            walks[layer, piece] = walk
            tasks += [*product, walk]
    return Schedule(tasks)


@lru_cache(maxsize=1024)
def backward_tasks(layers: int, pieces: int, at_once: int, *, is_pile: bool) -> Schedule:
    """List the ways back: a piece's walk, which in a pile waits for dx of the layer above, then its products.

    Products that nobody waits for are listed after the walks of the next wave: these shall find the chip free.
    """
    tasks: list[Task] = []
    later: list[Task] = []
    walks: dict[tuple[int, int], Task] = {}
    passed: dict[tuple[int, int], Task] = {}
    awaited, rest = (at_once, at_once + 1) if layers * pieces > 1 else (0, 0)
    for wave in _waves(layers, pieces, is_pile=is_pile):
        found: list[Task] = []
        for from_top, from_end in wave:
            layer, piece = layers - 1 - from_top, pieces - 1 - from_end
            before = [walks[layer, piece + 1]] if from_end else []
            before += [passed[layer + 1, piece]] if is_pile and from_top else []
            walk = Task(len(walks) % at_once, Do("step", layer, piece), tuple(before))
            down = Task(awaited if is_pile else rest, Do("pass_down", layer, piece), (walk,))
            weigh = Task(rest, Do("weigh", layer, piece), (walk, down))
            walks[layer, piece], passed[layer, piece] = walk, down
            tasks += [walk, down] if is_pile else [walk]
            found += [weigh] if is_pile else [down, weigh]
        tasks, later = tasks + later, found
    return Schedule(tasks + later)


def _perform(schedule: Schedule, layers: Sequence[Any], device: torch.device, at_once: int) -> None:
    perform(schedule, lambda do: getattr(layers[do.layer], do.name)(do.piece), device, urgency(at_once))


def _waves(layers: int, pieces: int, *, is_pile: bool) -> list[list[tuple[int, int]]]:
    """Order layers and pieces by when they can be read: in a pile, each layer a piece behind the one below."""
    waves: list[list[tuple[int, int]]] = [[] for _ in range(pieces + (layers - 1) * is_pile)]
    for layer in range(layers):
        for piece in range(pieces):
            waves[piece + layer * is_pile].append((layer, piece))
    return waves


def read(setting: Setting, lengths: Tensor | None, givens: Sequence[Given]) -> list[Found]:
    """Read with several layers of the same shape: y, the last h and c of each; in a pile only the top one's y."""
    if setting.back is None:
        return _ahead(setting, lengths, givens)[1]
    flat = (t for given in givens for t in given)
    found = _Read.apply(setting, lengths, *flat)  # type: ignore[no-untyped-call]
    return [tuple(found[i : i + 3]) for i in range(0, len(found), 3)]


def _ahead(setting: Setting, lengths: Tensor | None, givens: Sequence[Given]) -> tuple[list[Reading], list[Found]]:
    readings: list[Reading] = []
    first, cell = givens[0].x, setting.ahead.plan.cell
    for given in givens:
        x = None if not readings else _shared_x(setting, readings[-1])
        sizes = (first.shape[1], first.shape[0], given.w_ih.shape[1], given.w_hh.shape[1])
        extent = Extent(cell, *sizes, setting.dtype, has_x=x is None)
        from_end = setting.both_ways and bool(readings)
        readings.append(Reading(setting, extent, given, lengths, x, from_end=from_end))
        if len(readings) == 1:
            readings[0].multiply(0)
    many = len(readings), readings[0].rows.pieces, setting.ahead.at_once
    schedule = forward_tasks(*many, is_pile=setting.is_pile)
    if len(schedule.lanes) > 1:  # memory belongs to the stream that asks for it: this one, before lanes part
        for one in readings:
            _ = one.walk
    _perform(schedule, readings, first.device, setting.ahead.at_once)
    shown = range(len(givens))[-1:] if setting.is_pile else range(len(givens))
    pairs = enumerate(zip(readings, givens, strict=True))
    return readings, [one.found(given, first, has_y=i in shown) for i, (one, given) in pairs]


def _shared_x(setting: Setting, before: Reading) -> Tensor | None:
    """Give what a layer reads, step by step (T·B, D), where the layer before it has that already."""
    if setting.is_pile:
        return before.y.flatten(0, 1)
    return before.x if setting.both_ways else None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: Setting, lengths: Tensor | None, *tensors: Any) -> tuple[Any, ...]:
        givens = [Given(*tensors[i : i + FIELDS]) for i in range(0, len(tensors), FIELDS)]
        readings, found = _ahead(setting, lengths, givens)
        dtypes = [t.dtype if wants else None for t, wants in zip(tensors, ctx.needs_input_grad[2:], strict=True)]
        ctx.setting, ctx.wanted = setting, [Given(*dtypes[i : i + FIELDS]) for i in range(0, len(dtypes), FIELDS)]  # type: ignore[arg-type]
        ctx.set_materialize_grads(False)
        ctx.extents, ctx.layouts = [r.extent for r in readings], [r.rooms[1].layout for r in readings]
        pairs = zip(readings, givens, strict=True)
        ctx.save_for_backward(*(t for r, g in pairs for t in (*r.kept, g.w_hh)))
        return tuple(t for one in found for t in one)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        setting, saved, fields = ctx.setting, ctx.saved_tensors, len(Kept._fields)
        kept = [Kept(*saved[i : i + fields]) for i in range(0, len(saved), fields)]
        returnings: list[Returning] = []  # from the top
        for layer in reversed(range(len(kept))):
            d_y, *d_last = upstream[3 * layer : 3 * layer + 3]
            is_below, is_above = setting.is_pile and layer + 1 < len(kept), setting.is_pile and layer > 0
            d_y = returnings[-1].d_x if is_below else None if d_y is None else d_y.transpose(0, 1)
            own = (setting.back, ctx.extents[layer], ctx.layouts[layer], kept[layer])
            upon = (d_y, (d_last[0], d_last[1]), ctx.wanted[layer])
            returnings.append(Returning(*own, *upon, is_above=is_above, from_end=setting.both_ways and layer > 0))
        returnings.reverse()
        many = len(returnings), returnings[0].rows.pieces, setting.back.at_once
        _perform(backward_tasks(*many, is_pile=setting.is_pile), returnings, kept[0].y.device, setting.back.at_once)
        return None, None, *(t for one in returnings for t in one.found())
