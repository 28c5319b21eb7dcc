"""The examples that the laws are checked on: small ones first, then lengths beyond every chunk size of a layer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recollect.core.growing import Growing
from recollect.core.memory import Memory
from recollect.laws.trial import Example, Layer

# rows, new steps, past
SMALL = [(0, 2, 1), (1, 0, 0), (1, 1, 0), (1, 2, 1), (1, 3, 2), (2, 3, 0), (3, 5, 3), (3, 9, 5), (3, 33, 2)]
LONGEST_SMALL = 33
ROWS = 2  # of a long example
CHUNK_NAMES = (
    *("chunk", "chunk_size", "chunk_length", "block", "block_size", "block_length", "segment", "segment_size"),
    *("segment_length", "mini_batch", "window", "order"),
)


@dataclass(frozen=True)
class Length:
    """A long example: new steps, past, and the chunk borders at which it is cut."""

    steps: int
    past: int
    borders: tuple[int, ...] = ()
    is_light: bool = False  # never read step by step and differentiated

    @property
    def total(self) -> int:
        """All of its steps."""
        return self.steps + self.past


LONG = [Length(65, 3, (64,)), Length(130, 0, (64, 128))]  # beyond undeclared chunks of 64 and 128


def draw_inputs(layer: Layer, seed: int, memory: Memory | None) -> Tensor:
    """Draw inputs of the layer's width or vocabulary, long enough for every example."""
    generator = torch.Generator().manual_seed(seed)
    rows = max(b for b, _, _ in SMALL)
    steps = max([t + past for _, t, past in SMALL] + [length.total for length in _long_lengths(layer, memory)])
    dtype, device = layer._home()
    if layer.width is None:
        return torch.randint(layer.vocab_size, (rows, steps), generator=generator).to(device)
    x = torch.randn(rows, steps, layer.width, generator=generator, dtype=torch.float64)
    return x.to(dtype or torch.float64).to(device)


def small_examples(x: Tensor, memory: Memory | None, draw: random.Random) -> Iterator[Example]:
    """Yield examples cut from the inputs: full rows, ragged rows and, where there are few steps, all rows empty."""
    for b, t, past in SMALL:
        b, past = min(b, len(x)), min(past, x.shape[1])
        t = min(t, x.shape[1] - past)
        cuts = tuple(sorted(draw.sample(range(1, t), min(2, t - 1)))) if t > 1 else ()
        ragged = tuple(draw.randint(0, t) for _ in range(b))
        empty = [(0,) * b] if t < LONGEST_SMALL else []
        for lengths in dict.fromkeys([(t,) * b, ragged, *empty]):
            yield _cut_out(x, memory, past, t, lengths, cuts)


def long_examples(layer: Layer, x: Tensor, memory: Memory | None, draw: random.Random) -> Iterator[Example]:
    """Yield examples of few rows and many steps: beyond every chunk size, and the full inputs.

    The last that is not light is thorough.
    """
    available = x.shape[1]
    lengths = [length for length in _long_lengths(layer, memory) if length.total <= available]
    if available > max([LONGEST_SMALL + SMALL[-1][2], *(length.total for length in lengths)]):
        lengths.append(Length(available, 0))
    thorough = next((length for length in reversed(lengths) if not length.is_light), None)
    for length in lengths:
        rows = min(ROWS, len(x))
        steps = length.steps
        cuts = tuple(sorted({*draw.sample(range(1, steps), 2), *length.borders}))
        ragged = (steps, *(draw.randint(1, steps) for _ in range(rows - 1)))[:rows]
        valid = ragged if length.past else (steps,) * rows
        yield replace(_cut_out(x, memory, length.past, steps, valid, cuts), thorough=length is thorough)


def chunk_sizes(layer: Layer) -> set[int]:
    """Return the chunk sizes of a layer and its submodules: declared, or attributes with a known name."""
    sizes: set[int] = set()
    for module in layer.modules():
        declared = getattr(module, "chunk_sizes", ())
        found = [vars(module).get(name) for name in CHUNK_NAMES]
        sizes |= {size for size in (*declared, *found) if isinstance(size, int) and size > 1}
    return sizes


def _long_lengths(layer: Layer, memory: Memory | None) -> list[Length]:
    """Return the long examples, shortest first.

    Exactly two chunks, a case that may have its own path; for chunks beyond 64 also one step more, from within a chunk;
    and one step of a fourth chunk.
    """
    sizes = chunk_sizes(layer)
    lengths = [Length(2 * size, 0, (size,)) for size in sizes]
    lengths += [Length(3 * size + 1, 0, (size, 3 * size), is_light=True) for size in sizes]
    lengths += [Length(2 * size + 1, size - 1, (1, size + 1)) for size in sizes if size > 64]
    # a table of positions, or the slots of a given memory, limits the number of steps
    tables = [size for m in layer.modules() if isinstance(size := vars(m).get("max_length"), int)]
    parts = [] if memory is None else [m for m in memory.within() if isinstance(m, Growing)]
    slots = [m.slots - int(m.length.max()) for m in parts if m.reserved and m.limit is None and len(m.length)]
    most = min([*tables, *slots], default=None)
    return sorted((one for one in lengths + LONG if most is None or one.total <= most), key=lambda one: one.steps)


def _cut_out(
    x: Tensor, memory: Memory | None, past: int, steps: int, lengths: tuple[int, ...], cuts: tuple[int, ...]
) -> Example:
    b = len(lengths)
    start = None if memory is None else memory.select(list(range(b)))
    return Example(past=x[:b, :past], x=x[:b, past : past + steps], lengths=lengths, cuts=cuts, memory=start)
