"""The demo: every station of the line is held against the laws, and its memory is measured as it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from recollect.check import LAWS, check_layer
from recollect.layer import SequenceLayer
from recollect.layers.markov import Markov
from recollect.line import LINE, Station

STEPS = (1, 16, 256, 4096)


def run(begin: Callable[[str], None] = lambda name: None) -> Iterator[dict[str, Any]]:
    """Give one row for each station: laws that hold, and bytes after 1, 16, 256 and 4096 steps."""
    for station in LINE:
        begin(station.name)
        layer = small_layer(station)
        check_layer(layer)
        yield {"name": station.name, "year": station.year, "laws": len(LAWS), "memory": station.memory} | {
            "growth": station.growth,
            "bytes": list(bytes_after(station.build(), STEPS)),
        }


def small_layer(station: Station) -> SequenceLayer[Any]:
    """Make a layer in float64 with something to say: weights are drawn, and what counts has counted."""
    torch.manual_seed(0)
    layer = station.build().double()
    if isinstance(layer, Markov):
        layer.count(torch.randint(layer.vocab_size, (8, 200)))
    return layer


@torch.no_grad()
def bytes_after(layer: SequenceLayer[Any], steps: tuple[int, ...], piece: int = 256) -> Iterator[int]:
    """Really read so many steps, and give the memory's bytes at each."""
    memory, done = layer.initial_memory(1), 0
    for stop in steps:
        while done < stop:
            size = min(piece, stop - done)
            shape = (1, size) if layer.width is None else (1, size, layer.width)
            x = torch.randint(layer.vocab_size, shape) if layer.width is None else torch.randn(shape)
            memory, done = layer(x, memory)[1], done + size
        yield memory.nbytes
