"""How cost grows: time against steps T, width H, batch B, layers and context, for every family, with fitted exponents.

    python benchmarks/growth.py [--device cpu|cuda] [--axis T]

Stacks of layers without embedding and vocabulary, float32: forward, and forward + backward. One size varies, the others
stay at a base. Context: the time of one generated token after so many have been read. Every round times all families at
all sizes, so that a temporarily slow machine does not change a slope; a family that takes longer than the cap is not
timed at larger sizes. Saved after every round; the axes that are not run again are kept. Writes
benchmarks/results/growth.json (growth-cuda.json), and from the CPU's docs/growth.svg.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from common import ROOT, earlier, save_result
from recollect.bench.power_law import exponent, fit, upper_half
from recollect.bench.timing import BOTH, FORWARD, Clock, Work, clock_of, interleave, one_pass, summary
from recollect.core.compose import Stack
from recollect.core.layer import SequenceLayer
from recollect.generation.sampling import stream
from recollect.generation.settings import Settings
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel

COUNTED = ("markov",)  # trained by counting: it has no gradients
GENERATION = "generation"
AXES = {
    "cpu": {
        "T": (64, 128, 256, 512, 1024, 2048, 4096),
        "H": (64, 128, 256, 512, 1024),
        "B": (1, 2, 4, 8, 16, 32, 64),
        "layers": (1, 2, 3, 4, 6, 8),
        "context": (256, 512, 1024, 2048, 4096, 8192, 16384),
    },
    "cuda": {
        "T": (256, 512, 1024, 2048, 4096, 8192),
        "H": (128, 256, 512, 1024, 2048),
        "B": (4, 8, 16, 32, 64, 128, 256),
        "layers": (1, 2, 3, 4, 6, 8),
        "context": (256, 512, 1024, 2048, 4096, 8192, 16384),
    },
}
BASES = {
    "cpu": {"T": 256, "H": 128, "B": 4, "layers": 1},
    "cuda": {"T": 512, "H": 256, "B": 16, "layers": 1},
}
HEAD_WIDTH, ORDER, VOCAB, TOKENS = 32, 4, 64, 32  # tokens generated in a round
ROUNDS, CAP = 5, 2.0  # seconds of one pass
THEORY = {"T": 1, "H": 2, "B": 1, "layers": 1, "context": 0}  # exponents in the end, however far that is
ATTENTION = {"T": 2, "context": 1}  # where the transformer differs

Key = tuple[str, str, int]  # family, pass and size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(AXES), default="cpu")
    parser.add_argument("--axis", choices=tuple(THEORY), action="append", help="Only this one; may be given again.")
    options = parser.parse_args()
    name = "growth" if options.device == "cpu" else f"growth-{options.device}"
    for axis in options.axis or THEORY:
        for rows in grow(axis, options.device):
            kept = [row for row in earlier(name) if row["axis"] != axis]
            in_order = sorted(kept + rows, key=lambda row: list(THEORY).index(row["axis"]))
            save_result(name, in_order, setting=setting(options.device))
        print(*(f"{row['family']:18}{row['pass']:20}{row['exponent']:6.2f}" for row in rows), sep="\n", flush=True)
    if options.device == "cpu":
        draw(earlier(name))
    return 0


def draw(rows: list[dict[str, Any]]) -> None:
    import matplotlib  # a machine with a GPU need not have it

    matplotlib.use("Agg")
    import growth_picture

    growth_picture.draw(rows, BASES["cpu"], str(ROOT / "docs" / "growth.svg"))


def setting(device: str) -> dict[str, Any]:
    shape = {"base": BASES[device], "head_width": HEAD_WIDTH, "order": ORDER, "vocab": VOCAB}
    how = {"rounds": ROUNDS, "cap_seconds": CAP, "threads": torch.get_num_threads(), "dtype": "float32"}
    return {**shape, **how, "device": device}


def grow(axis: str, device: str) -> Iterator[list[dict[str, Any]]]:
    """Time one axis; yield the rows after every round but the first."""
    contenders = prepare(axis, device)
    print(f"{axis}: {len(contenders)} contenders", flush=True)
    clock, share = clock_of(torch.device(device)), TOKENS if axis == "context" else 1
    times: dict[Key, list[float]] = {key: [] for key in contenders}
    for n in range(1, ROUNDS + 1):
        for key, seconds in interleave(contenders, rounds=1, warmup=0, clock=clock).items():
            times[key].append(seconds[0] / share)
        if n >= 2:
            yield [row_of(axis, *which, device, own) for which, own in by_line(times).items()]


def prepare(axis: str, device: str) -> dict[Key, Work]:
    """Return the work of every family, pass and size, after a first run; a family ends at the cap."""
    torch.manual_seed(0)
    make, clock, contenders = speakers if axis == "context" else readers, clock_of(torch.device(device)), {}
    for family in (f for f in FAMILIES if f not in COUNTED):
        for size in AXES[device][axis]:
            works = make(family, axis, size, device)
            contenders |= works
            if max(warm_up(work, clock) for work in works.values()) > CAP:
                break
    return contenders


def warm_up(work: Work, clock: Clock) -> float:
    """Return the time of work, run a second time where the first may have been disturbed."""
    seconds = clock(work)
    return seconds if seconds < CAP else min(seconds, clock(work))


def by_line(times: dict[Key, list[float]]) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Gather the sizes of each family and pass."""
    lines: dict[tuple[str, str], dict[int, list[float]]] = {}
    for (family, task, size), seconds in times.items():
        lines.setdefault((family, task), {})[size] = seconds
    return lines


def readers(family: str, axis: str, size: int, device: str) -> dict[Key, Work]:
    """Return a forward pass, and a forward + backward pass."""
    at = BASES[device] | {axis: size}
    x = torch.randn(at["B"], at["T"], at["H"], device=device)
    work = {}
    for task in (FORWARD, BOTH):
        layers = build(family, at["H"], at["layers"]).to(device)
        work[family, task, size] = one_pass(task, layers, first_of(layers), x)
    return work


def first_of(layers: SequenceLayer[Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: layers(x)[0]


def build(family: str, width: int, layers: int) -> SequenceLayer[Any]:
    """Return a family's layers as in its language model, without embedding and output layer."""
    shape = {"width": width, "layers": layers, "heads": width // HEAD_WIDTH, "order": ORDER}
    model = LanguageModel(LanguageConfig(family, 2, **shape))
    assert isinstance(model.body, Stack)
    return Stack(*list(model.body)[1:-1])


def speakers(family: str, axis: str, size: int, device: str) -> dict[Key, Work]:
    """Read so many ids, and return work that generates some more at every call."""
    at = BASES[device]
    layers = 1 if family == "window" else at["layers"]  # as published
    shape = {"width": at["H"], "layers": layers, "heads": at["H"] // HEAD_WIDTH, "order": ORDER}
    model = LanguageModel(LanguageConfig(family, VOCAB, **shape)).eval().to(device)
    ids = torch.randint(VOCAB, (size,)).tolist()
    said = stream(model, [ids], Settings(tokens=TOKENS * (ROUNDS + 2), greedy=True))

    def speak() -> None:
        for _ in range(TOKENS):
            next(said)

    return {(family, GENERATION, size): speak}


def row_of(axis: str, family: str, task: str, device: str, times: dict[int, list[float]]) -> dict[str, Any]:
    """Return the medians, the fit, the widest spread of the fitted sizes, and the theoretical exponent."""
    sizes, found = list(times), [summary(seconds) for seconds in times.values()]
    row = {"axis": axis, "family": family, "pass": task, "sizes": sizes}
    row["ms"] = [float(f"{seconds * 1e3:.4g}") for seconds, _ in found]
    row["spread"] = round(max(spread for _, spread in found[upper_half(sizes) :]), 3)
    fitted = fit(sizes, list(zip(*times.values(), strict=True)))
    row |= {name: round(value, 3) for name, value in fitted.items()}
    if family != "transformer" or axis not in ATTENTION:
        return row | {"theory": THEORY[axis]}
    operations = [attention_operations(axis, size, BASES[device]) for size in sizes]
    here = exponent(sizes[upper_half(sizes) :], operations[upper_half(sizes) :])
    return row | {"theory": ATTENTION[axis], "theory_here": round(here, 3)}


def attention_operations(axis: str, size: int, base: dict[str, int]) -> float:
    """Return the operations of a block: its matmuls, and attention, which dominates at large T only.

    T steps take T (24 H² + 2 T H), as each attends to half of them on average; one step after n takes 24 H² + 4 n H.
    """
    width = base["H"]
    return size * (24 * width**2 + 2 * size * width) if axis == "T" else 24 * width**2 + 4 * size * width


if __name__ == "__main__":
    sys.exit(main())
