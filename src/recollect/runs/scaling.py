"""The time of an update on several devices, from that on one: a model of communication, with its assumptions.

Each device reads its rows in c seconds, in a batches one after the other, a third of it forwards and two thirds
backwards. Machines of G devices; bytes a second of a device, in one direction, to others of its machine (w) and to
other machines (v). To gather b bytes, of which each of N = G · M devices has 1/N,

    g(b) = (G − 1)/G · b/w + (M − 1)/M · b/(G v) + l log₂ N

since the devices of a machine fetch different parts of what other machines have, and exchange them inside. l is the
time of the shortest message. Gathering gradients' sums (reduce-scatter) takes as long; an all-reduce is both.

    copies (DDP):    c + max(2 g(b) − ⅔ c/a, 2 g(b)/k)          b the gradients' bytes in k buckets of at most 25 MiB
    copies, captured: c + 2 g(b)                                averaged after the replay of a CUDA graph
    sharded (FSDP):  c + max((2a + 1) g(b) − c, (2a + 1) g(b)/k)  gathered before each pass, summed after the last

Else communication overlaps with computing, but for its last bucket; that of copies with the last backward pass alone.
Assumed, not measured here: links reach `SHARE` of their nominal rate, computing is not slowed by the exchange beside
it, and no device waits for another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUCKET = 25 * 2**20  # bytes of gradients that DDP sends at once
BACKWARD = 2 / 3  # of the time of an update
SHARE = 0.8  # of a link's nominal rate
LATENCY = 10e-6  # seconds


@dataclass(frozen=True)
class Links:
    """The connections of devices: nominal bytes a second of each, in one direction."""

    name: str
    inside: float  # to devices of the same machine
    between: float  # to those of other machines
    devices: int = 8  # of a machine

    def gathering(self, size: float, count: int) -> float:
        """Return the seconds until each of `count` devices has all bytes, of which each had an equal part."""
        if count == 1:
            return 0.0
        here = min(count, self.devices)
        machines = math.ceil(count / self.devices)
        inside = (here - 1) / here * size / (SHARE * self.inside)
        between = (machines - 1) / machines * size / (here * SHARE * self.between)
        return inside + between + LATENCY * math.log2(count)


INFINIBAND = Links("NVLink, InfiniBand", 450e9, 50e9)  # NVLink 4: 900 GB/s both ways; 400 Gb/s of each device
ETHERNET = Links("PCIe, Ethernet", 32e9, 12.5e9 / 8)  # PCIe 4 x16; 100 Gb/s of each machine
LINKS = (INFINIBAND, ETHERNET)


def update_seconds(
    computing: float,
    size: float,
    count: int,
    links: Links,
    *,
    is_sharded: bool = False,
    is_captured: bool = False,
    batches: int = 1,
) -> float:
    """Return the seconds of an update on `count` devices, each of which computes its rows in `computing` seconds.

    size: the bytes of all weights, as of their gradients. batches: to the update, of which the last is synchronised.
    """
    sent = (2 * batches + 1 if is_sharded else 2) * links.gathering(size, count)
    hidden = computing if is_sharded else BACKWARD * computing / batches
    if is_captured and not is_sharded:
        return computing + sent
    buckets = max(1, math.ceil(size / BUCKET))
    return computing + max(sent - hidden, sent / buckets)
