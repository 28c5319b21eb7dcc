"""Time and bytes for one more symbol against the symbols read before, for every family, with fitted exponents.

    python benchmarks/contexts.py [--device cpu|cuda]

One block of each family as a language model, width 128, untrained (neither depends on the weights): 128 to 16,384
symbols are read (on a GPU 131,072), and at every doubling the least time of a symbol as `generate` produces it and the
bytes of the memory are measured, by the code of `recollect compare`. Every round measures all families. Exponents
are fitted over the upper half of the contexts. Writes benchmarks/results/contexts.json (contexts-cuda.json).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import torch

from common import SMOKE, save_result
from recollect.bench.power_law import exponent, fit, upper_half
from recollect.comparison.contexts import CONTEXTS, read_contexts
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel

COUNTED = ("markov",)  # its context is its order
MOST = {"cpu": CONTEXTS[-1], "cuda": 131_072}
SHAPE = {"width": 128, "layers": 1, "heads": 4, "order": 4}
VOCAB, ROUNDS, PATIENCE = 64, 5, 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(MOST), default="cpu")
    device = parser.parse_args().device
    contexts = [n for n in (2**i for i in range(7, 18)) if n <= (512 if SMOKE else MOST[device])]
    torch.manual_seed(0)
    models = {
        name: LanguageModel(LanguageConfig(name, VOCAB, **SHAPE)).eval().to(device)
        for name in FAMILIES
        if name not in COUNTED
    }
    rounds = [
        {name: read_contexts(model, contexts, PATIENCE) for name, model in models.items()} for _ in range(ROUNDS + 1)
    ]
    rows = [row_of(name, [one[name] for one in rounds[1:]]) for name in models]  # the first compiles
    for row in rows:
        print(f"{row['family']:18}{row['microseconds'][0]:8.0f}{row['microseconds'][-1]:8.0f}{row['exponent']:7.2f}")
    setting = {**SHAPE, "vocab": VOCAB, "rounds": ROUNDS, "threads": torch.get_num_threads(), "device": device}
    save_result("contexts" if device == "cpu" else f"contexts-{device}", rows, setting=setting)
    return 0


def row_of(family: str, rounds: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the medians of the times, the bytes, and the exponents of both."""
    contexts = [row["context"] for row in rounds[0]]
    times = [[row["seconds"] for row in one] for one in rounds]
    sizes = [row["bytes"] for row in rounds[0]]
    start = upper_half(contexts)
    medians = [statistics.median(values) for values in zip(*times, strict=True)]
    row = {"family": family, "contexts": contexts, "microseconds": [float(f"{1e6 * t:.4g}") for t in medians]}
    row |= {name: round(value, 3) for name, value in fit(contexts, times).items()}
    return row | {"bytes": sizes, "bytes_exponent": round(exponent(contexts[start:], sizes[start:]), 3)}


if __name__ == "__main__":
    sys.exit(main())
