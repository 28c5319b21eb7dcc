"""Batches of random windows from a memory-mapped file, beside nanoGPT's `get_batch` on the same file.

    NANOGPT=peers/nanoGPT python benchmarks/batches.py

Calls are interleaved in one process. Theirs is used unchanged from nanoGPT's train.py; it maps the file again at every
call, which is its own choice, against a memory leak.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common import interleave, save_result, summary
from nanogpt import get_batch_of
from recollect.data.text.batches import Windows

SHAPES = ((12, 64), (12, 1024), (64, 256))
SYMBOLS, CALLS, ROUNDS, GOAL = 1_000_000, 100, 30, 5.0


def main() -> int:
    peer = Path(os.environ.get("NANOGPT", "peers/nanoGPT"))
    if not (peer / "train.py").exists():
        print(f"NANOGPT: got {peer}, expected a folder with nanoGPT's train.py")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.random.default_rng(0).integers(65, size=SYMBOLS).astype(np.uint16).tofile(folder / "train.bin")
        rows = [compare(peer, folder, *shape) for shape in SHAPES]
    save_result("batches", rows, goal=GOAL)
    return 0 if all(row["times_faster"] >= GOAL for row in rows) else 1


def compare(peer: Path, folder: Path, batch_size: int, steps: int) -> dict[str, Any]:
    ids = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
    ours = iter(Windows(ids, batch_size, steps))
    theirs = get_batch_of(peer, folder, batch_size, steps)
    for x, y in ((batch.x, batch.y) for batch in (next(ours), next(ours))):
        assert x.shape == y.shape == theirs("train")[0].shape
        assert (x[:, 1:] == y[:, :-1]).all()

    def take(what: Any) -> Any:
        return lambda: [what() for _ in range(CALLS)]

    contenders = {"ours": take(lambda: next(ours)), "theirs": take(lambda: theirs("train"))}
    found = {name: summary(times) for name, times in interleave(contenders, ROUNDS).items()}
    row = {f"{name}_us": 1e6 * median / CALLS for name, (median, _) in found.items()}
    spread = max(spread for _, spread in found.values())
    row |= {"rows": batch_size, "steps": steps, "times_faster": row["theirs_us"] / row["ours_us"], "spread": spread}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
