"""Several walks on one chip: layers beside each other, layers one above the other, and products beside a walk.

Time is cut into pieces. Where layers lie above each other, one reads a piece while the next reads the piece before
it, as a wave; on the way back the large products of a piece are made while the walk goes on with the piece before it.
Which task waits for which is said here, how it waits is the business of `lanes.py`, and how many walks run at once and
in pieces of how many steps that of whoever gives a `Way`. The results are those of one walk after the other, but for
the order in which products of weights are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.kernels import tf32
from recollect.kernels.finishing import WeightProducts, weight_gradients
from recollect.kernels.lanes import Schedule, Task, perform
from recollect.kernels.launching import Backward, Forward, Machine, Seen
from recollect.kernels.plans import Plan
from recollect.kernels.preparing import prepare_backward, prepare_forward
from recollect.kernels.recurrences import Given

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
        given: Given,
        lengths: Tensor | None,
        x: Tensor | None,
        *,
        steps: int,
        from_end: bool,
    ) -> None:
        machine, plan, _, size = setting.ahead
        (batch, hidden), keeps = given.h.shape, setting.back is not None
        self.rows, self.from_end = _Rows(steps, batch, size, from_end), from_end
        if x is not None:  # step by step already (T·B, D)
            given = given._replace(x=x.new_empty(batch, 0, x.shape[1]))
        ready, self.x, self.weight = prepare_forward(machine, plan, given, setting.dtype, self.rows.pieces)
        self.x = self.x if x is None else x
        logits = self.x.new_empty((steps, batch, hidden, len(self.weight) // hidden))
        self.logits = logits.flatten(0, 1).flatten(1)  # (T·B, H·S)
        self.walk = Forward(machine, plan, logits, ready, lengths, keeps=keeps, size=size, from_end=from_end)

    @property
    def y(self) -> Tensor:
        """All outputs, in the order of x (T, B, H)."""
        return after_steps(self.walk.seen.y, from_end=self.from_end)

    def multiply(self, piece: int) -> None:
        """Find a piece's logits, as far as they hang on x."""
        rows = self.rows.of(piece)
        torch.mm(self.x[rows], self.weight.t(), out=self.logits[rows])

    def step(self, piece: int) -> None:
        """Walk through a piece."""
        self.walk.walk(piece)

    def found(self, given: Given, *, has_y: bool) -> Found:
        """What the caller wants of it, in the dtypes of what was given."""
        h, c = self.walk.last
        c = None if c is None or given.c is None else c.to(given.c.dtype)
        return self.y.transpose(0, 1) if has_y else None, h.to(given.h.dtype), c


class Kept(NamedTuple):
    """What a layer keeps for the way back."""

    gates: Tensor  # (T, B, H, S)
    cells: Tensor | None  # (T + 1, B, H)
    y: Tensor  # (T + 1, B, H)
    lengths: Tensor | None
    x: Tensor  # (T·B, D)
    weight: Tensor  # W_ih slot by slot (H·S, D)
    w_hh: Tensor


class Returning:
    """One layer's way back: for each piece the walk, then the products that it allows."""

    def __init__(
        self,
        way: Way,
        kept: Kept,
        d_y: Tensor | None,
        d_last: tuple[Tensor | None, Tensor | None],
        wanted: Any,
        *,
        is_above: bool,
        from_end: bool,
    ) -> None:
        self.machine, self.plan, _, size = way
        steps, batch, hidden, _ = kept.gates.shape
        self.kept, self.wanted, self.rows = kept, wanted, _Rows(steps, batch, size, from_end)
        count = self.rows.pieces
        ready = prepare_backward(self.machine, self.plan, kept.w_hh, batch, kept.y.dtype, count)
        self.walk = Backward(self.machine, self.plan, Seen(*kept[:4]), ready, d_y, d_last, size, from_end=from_end)
        self.flat = self.walk.d_logits.flatten(0, 1).flatten(1)  # (T·B, H·S)
        self.before = before_steps(kept.y, from_end=from_end).flatten(0, 1)  # (T·B, H)
        width = kept.x.shape[1]
        self.d_x = kept.x.new_empty((steps, batch, width)) if is_above or wanted.x else None
        self.products = WeightProducts(kept.x, self.flat.shape[1], width, hidden, wanted, count)
        self.shape = (width, hidden)

    def step(self, piece: int) -> None:
        """Walk back through a piece."""
        self.walk.walk(piece)

    def pass_down(self, piece: int) -> None:
        """Find a piece's dx."""
        rows = self.rows.of(piece)
        if self.d_x is not None:
            torch.mm(self.flat[rows], self.kept.weight, out=self.d_x.flatten(0, 1)[rows])

    def weigh(self, piece: int) -> None:
        """Add a piece's share of dW."""
        rows = self.rows.of(piece)
        self.products.add(self.flat[rows], self.kept.x[rows], self.before[rows])

    def found(self) -> list[Tensor | None]:
        """All gradients, in the order of `Given`, where they are wanted."""
        (h, c), d_x, wanted = self.walk.d_first, self.d_x, self.wanted
        d_weights = weight_gradients(self.machine, self.plan, self.products, self.walk.d_bias, self.shape, wanted)
        d_x = None if d_x is None or not wanted.x else d_x.transpose(0, 1)
        return [d_x, h if wanted.h else None, c if wanted.c else None, *d_weights]


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

    def of(self, piece: int) -> slice:
        start, end = piece * self.size, min(self.steps, (piece + 1) * self.size)
        if self.from_end:
            start, end = self.steps - end, self.steps - start
        return slice(start * self.batch, end * self.batch)


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
    """List the ways forward: a piece's product, which in a pile waits for the layer below, then its walk."""
    tasks: list[Task] = []
    walks: dict[tuple[int, int], Task] = {}
    beside = at_once if layers * pieces > 1 else 0
    for wave in _waves(layers, pieces, is_pile=is_pile):
        for layer, piece in wave:
            below = (walks[layer - 1, piece],) if is_pile and layer else ()
            product = Task(beside, Do("multiply", layer, piece), below)
            before = (walks[layer, piece - 1],) if piece else ()
            walk = Task(len(walks) % at_once, Do("step", layer, piece), (product, *before))
            walks[layer, piece] = walk
            tasks += [product, walk]
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


def _perform(schedule: Schedule, layers: Sequence[Any], dtype: torch.dtype, device: torch.device, at_once: int) -> None:
    with tf32.lent(dtype):
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
    for given in givens:
        x = None if not readings else _shared_x(setting, readings[-1])
        how: Any = {"steps": givens[0].x.shape[1], "from_end": setting.both_ways and bool(readings)}
        readings.append(Reading(setting, given, lengths, x, **how))
    many = len(readings), readings[0].rows.pieces, setting.ahead.at_once
    where = setting.dtype, givens[0].x.device
    _perform(forward_tasks(*many, is_pile=setting.is_pile), readings, *where, setting.ahead.at_once)
    shown = range(len(givens))[-1:] if setting.is_pile else range(len(givens))
    return readings, [
        one.found(given, has_y=i in shown) for i, (one, given) in enumerate(zip(readings, givens, strict=True))
    ]


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
        pairs = zip(readings, givens, strict=True)
        ctx.save_for_backward(*(t for r, g in pairs for t in (*r.walk.seen, r.x, r.weight, g.w_hh)))
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
            own = (setting.back, kept[layer], d_y, (d_last[0], d_last[1]), ctx.wanted[layer])
            returnings.append(Returning(*own, is_above=is_above, from_end=setting.both_ways and layer > 0))
        returnings.reverse()
        many = len(returnings), returnings[0].rows.pieces, setting.back.at_once
        where = setting.dtype, kept[0].y.device
        _perform(backward_tasks(*many, is_pile=setting.is_pile), returnings, *where, setting.back.at_once)
        return None, None, *(t for one in returnings for t in one.found())
