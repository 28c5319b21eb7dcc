"""How a recurrent layer is mapped to a GPU: which blocks own which units and rows, and how they exchange states.

A plan fixes everything that the kernels in `cuda/` are compiled for. Plans are offered in the order of their speed; the
first that fits on the chip is selected.

What a step costs on an H200, in µs (measured parts: all blocks of a chip synchronise through one counter 0.95; a block
copies 64 KB from the L2 cache in 0.6, beside the product of 64 gate rows x k 1024 x 32 rows, 0.6 too):

    through the cache   0.95 + max(copy, product) + 0.1 for the first chunk + 0.3 for what follows the product
    inside a cluster    0.3 + product + 0.3

In tf32 a product takes twice as long, and so does a copy of as many elements.

Backward sends four gates instead of one state. If every block read all of them, 32 rows at H 1024 would be 256 KB and
2.3 µs; a cluster of 4 blocks that share k read 64 KB each and add 0.3 for partial sums inside the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch

CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SENT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # slots of a unit that W_hh multiplies in backward
ROWS = (8, 16, 24, 32, 64)  # rows of a group: the columns of a product
INSIDE = (24,)  # of these only inside clusters: seven of 16 blocks fit on a chip; through the cache they are slower
REGISTERS = 208  # of a thread's 255, for weights and sums: more leave too few for the rest
FEWER_REGISTERS = 192  # enough in tf32, whose elements take more: other weights go to shared memory, as far as they fit
LAID_BYTES = 2048  # of a tile of weights
MOST_LAUNCHES = 2  # in tf32, where registers alone cannot hold the weights: more were not measured to be faster
WIDEST = 512  # hidden units that one cluster of 16 blocks can hold
COUNTER_GAP = 32
CHUNK_BYTES = 8192  # at least: the product begins when the first chunk has arrived, and every chunk has a cost


@dataclass(frozen=True)
class Chip:
    """What a plan needs to know of a GPU."""

    multiprocessors: int = 132
    shared_bytes: int = 232_448  # that one block may have


@dataclass(frozen=True)
class KernelPlan:
    """The layout of one kernel. `cuda/common.cuh` defines the terms."""

    direction: str  # "forward" or "backward"
    cell: str
    half: bool  # fp16, else bf16
    rows: int
    groups: int
    blocks: int
    cluster: int
    through_l2: bool
    wide: int
    deep: int
    chunks: int = 1
    per_chunk: int = 1
    tiles: int = 1  # sixteens of units of a block
    high: int = 1  # backward: tiles of 64 units of a warpgroup
    tf32: bool = False  # float32, multiplied as tf32
    laid: int = 0  # tiles of weights of a warpgroup in shared memory, where registers do not suffice

    def __hash__(self) -> int:
        """Return a cached hash: every call looks a plan up in many places."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(astuple(self))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the tensors that it reads and writes."""
        return torch.float32 if self.tf32 else torch.float16 if self.half else torch.bfloat16

    @property
    def units(self) -> int:
        """Hidden units of a block."""
        return 16 * self.tiles

    @property
    def fold(self) -> int:
        """Tiles of k in sixteen units: a tile has 32 bytes of a row."""
        return _fold(self.tf32)

    @property
    def depth(self) -> int:
        """Tiles of k that a warpgroup multiplies."""
        own = self.tiles * self.fold * _sent(self.direction, self.cell)
        if self.through_l2:
            return self.chunks * self.per_chunk * own
        return (self.blocks if self.direction == "forward" else 1) * own

    @property
    def weight_tiles(self) -> int:
        """Tiles of weights that a thread holds a part of."""
        return self.depth * self.high

    @property
    def registers(self) -> int:
        """Registers for weights and sums."""
        return 4 * (self.weight_tiles - self.laid) + self.high * self.rows // 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * self.wide * self.deep

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.groups * self.blocks

    @property
    def batch(self) -> int:
        """Rows that one launch can read."""
        return self.groups * self.rows

    @property
    def share_bytes(self) -> int:
        """Bytes that a block multiplies its weights with, in one step."""
        return self.deep * self.depth * self.rows * 32

    @property
    def paired(self) -> bool:
        """Whether sums are sent in pairs: bf16 needs fewer bits of them, and from 16 rows on they fill a store."""
        return not (self.half or self.tf32) and self.rows > 8

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        buffers = 1 if self.through_l2 else 2
        columns, groups = self.rows // 8, self.wide * self.deep
        if self.direction == "forward":
            sums = groups * columns * 2048 if self.deep > 1 else 0
        else:
            sums = 2 * self.cluster * self.deep * self.tiles * columns * (256 if self.paired else 512)
        laid = groups * self.laid * LAID_BYTES
        return buffers * self.share_bytes + sums + laid + 8 * (4 + self.deep * self.chunks)

    @property
    def exchange_bytes(self) -> int:
        """Bytes that the groups exchange through the cache, for two steps."""
        shares = 1 if self.direction == "forward" else self.cluster
        return 2 * self.groups * shares * self.share_bytes if self.through_l2 else 0

    @property
    def counters(self) -> int:
        """Words for the counters."""
        shares = 1 if self.direction == "forward" else self.cluster
        return self.groups * shares * self.deep * self.chunks * COUNTER_GAP if self.through_l2 else 0

    @property
    def source(self) -> str:
        """The source file that it is compiled from."""
        return self.direction

    @property
    def entry(self) -> str:
        """The kernel's name there."""
        return f"recurrent_{self.direction}"

    @property
    def macros(self) -> dict[str, int]:
        """The macros that the source is compiled with."""
        names = (f.name for f in fields(self) if f.name not in ("direction", "cell", "groups"))
        kind = {"CELL": CELLS.index(self.cell), "PAIRED": int(self.paired)}
        return kind | {name.upper(): int(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Chore:
    """A small kernel before or after a time loop; any number of threads divide the work, and none waits for another."""

    source: str
    direction: str
    cell: str
    half: bool
    tf32: bool = False

    threads: ClassVar[int] = 256
    grid: ClassVar[int] = 1  # at least
    shared_bytes: ClassVar[int] = 1024  # through which `finish` sums
    cluster: ClassVar[int] = 1
    through_l2: ClassVar[bool] = False

    @classmethod
    def all_of(cls, plan: KernelPlan) -> dict[str, Chore]:
        """Return the chores of a plan, by name."""
        names = ("prepare",) if plan.direction == "forward" else ("prepare", "finish")
        return {name: cls(name, plan.direction, plan.cell, plan.half, plan.tf32) for name in names}

    @property
    def entry(self) -> str:
        """The kernel's name in its file."""
        return self.source

    @property
    def macros(self) -> dict[str, int]:
        """The macros that the source is compiled with: sizes are arguments, so that few variants are compiled."""
        kind = {"CELL": CELLS.index(self.cell), "HALF": int(self.half), "TF32": int(self.tf32)}
        return {**kind, "BACKWARD": int(self.direction == "backward"), "THREADS": self.threads}


class Wanted(NamedTuple):
    """What a plan is requested for."""

    direction: str
    cell: str
    half: bool
    tf32: bool
    batch: int
    hidden: int

    def plan(self, rows: int, groups: int, blocks: int, cluster: int, through_l2: bool, **rest: Any) -> KernelPlan:
        """Return a plan for it."""
        kind = self.direction, self.cell, self.half
        return KernelPlan(*kind, rows, groups, blocks, cluster, through_l2, tf32=self.tf32, **rest)


def offer(
    direction: str, cell: str, half: bool, batch: int, hidden: int, chip: Chip, *, tf32: bool = False
) -> Iterator[KernelPlan]:
    """Return the plans that the chip has memory for, the fastest first; none where `hidden` is too large."""
    wanted = Wanted(direction, cell, half, tf32, batch, hidden)
    inside = _inside_cluster(wanted) if hidden <= WIDEST else iter(())
    for plan in (*inside, *_through_l2(wanted, chip)):
        if plan.shared_bytes <= chip.shared_bytes and plan.registers <= REGISTERS:
            yield plan


def _inside_cluster(wanted: Wanted) -> Iterator[KernelPlan]:
    blocks = max(2, _ceil(wanted.hidden, 32))  # a cluster of one cannot send to itself
    high = 1 if wanted.direction == "forward" else _ceil(blocks, 4)
    for rows in ROWS[:-1] if wanted.tf32 else ROWS:  # a thread sends 16 bytes of its block's slice, at most
        yield wanted.plan(rows, _ceil(wanted.batch, rows), blocks, blocks, False, wide=2, deep=1, tiles=2, high=high)
        if rows >= wanted.batch:
            return


def _through_l2(wanted: Wanted, chip: Chip) -> Iterator[KernelPlan]:
    cluster = 1 if wanted.direction == "forward" else 4
    blocks = _ceil(_ceil(wanted.hidden, 16), cluster) * cluster
    share = blocks // cluster  # blocks that fill a block's share of k
    tiles = share * _sent(wanted.direction, wanted.cell) * _fold(wanted.tf32) // 2  # of k, for a warpgroup
    for rows, groups in _slices(wanted.batch, most=chip.multiprocessors // blocks):
        chunks = max(1, min(4, tiles * rows * 32 // CHUNK_BYTES, share // 2))
        if wanted.tf32:  # registers are scarce: leave as little of the last chunk empty as possible
            chunks = min(range(1, chunks + 1), key=lambda n: (n * _ceil(share, 2 * n), -n))
        per_chunk = _ceil(share, 2 * chunks)
        plan = wanted.plan(rows, groups, blocks, cluster, True, wide=1, deep=2, chunks=chunks, per_chunk=per_chunk)
        if plan.registers <= FEWER_REGISTERS or not wanted.tf32:
            yield plan
        elif plan.registers <= REGISTERS or _ceil(wanted.batch, plan.batch) <= MOST_LAUNCHES:
            yield _lay_down(plan, chip)


def _lay_down(plan: KernelPlan, chip: Chip) -> KernelPlan:
    """Move weights to shared memory: as many as exceed the registers, or as fit."""
    spare = (chip.shared_bytes - plan.shared_bytes) // (plan.wide * plan.deep * LAID_BYTES)
    return replace(plan, laid=max(0, min(spare, _ceil(plan.registers - FEWER_REGISTERS, 4))))


def _slices(batch: int, most: int) -> list[tuple[int, int]]:
    """Return rows of a group and groups of a launch: few launches first, then few rows."""
    every = [rows for rows in ROWS if rows not in INSIDE]
    found = {(rows, min(_ceil(batch, rows), groups)) for rows in every for groups in range(1, most + 1)}
    return sorted(found, key=lambda pair: (_ceil(batch, pair[0] * pair[1]), *pair))


def _sent(direction: str, cell: str) -> int:
    """Return the slots of a unit that W_hh multiplies."""
    return 1 if direction == "forward" else SENT[cell]


def _fold(tf32: bool) -> int:
    return 2 if tf32 else 1


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
