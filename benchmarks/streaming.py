"""A text of two gigabytes that is never held in memory: corpus and training, with the peak of resident memory.

    python benchmarks/streaming.py

The text is drawn by Zipf's law from invented words, in Latin and Greek letters, so that characters and bytes
differ. Each tokenizer has a separate process; byte pairs use only the first twentieth of the text, since they are
encoded at a few megabytes a second. Pages of mapped files that were touched count as resident.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import save_result
from recollect.data.text.batches import Streams
from recollect.data.text.corpus import load_corpus
from recollect.models.language import LanguageModel
from recollect.models.sizes import sized
from recollect.training.loop import update
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState

BAR_MB = 1000  # resident
UPDATES, BATCH, STEPS = 20, 16, 128
PARAMETERS = 250_000  # of the LSTM, embeddings and output included
VOCABULARY = {"word": 50_000, "bpe": 8_000}
PART = 20  # byte pairs use one part in so many
WORDS, A_LINE, LINES = 20_000, 12, 10_000  # words there are, to a line, and lines written at a time
LETTERS = "abcdefghijklmnopqrstuvwxyzαβγδε"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--measure", nargs=3, metavar=("FILE", "TOKENIZER", "CACHE"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "whole.txt", options.bytes)
        write_text(folder / "part.txt", options.bytes // PART)
        files = {"char": "whole.txt", "byte": "whole.txt", "bpe": "part.txt"}
        rows = [apart(folder / file, kind, folder / kind) for kind, file in files.items()]
    save_result("streaming", rows, bar_mb=BAR_MB)
    return 0 if all(row["peak_mb"] < BAR_MB for row in rows) else 1


def write_text(path: Path, size: int) -> None:
    """Write at least so many bytes, the same every time."""
    draw = np.random.default_rng(0)
    letters = np.array(list(LETTERS))
    words = ["".join(letters[draw.integers(len(letters), size=draw.integers(2, 11))]) for _ in range(WORDS)]
    upto = (1 / np.arange(1, WORDS + 1)).cumsum()
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            drawn = np.searchsorted(upto, draw.random((LINES, A_LINE)) * upto[-1])
            file.writelines(" ".join([words[i] for i in line]) + "\n" for line in drawn.tolist())


def apart(path: Path, kind: str, cache: Path) -> dict[str, Any]:
    """Measure in a separate process, so that the peak belongs to it alone."""
    command = [sys.executable, __file__, "--measure", str(path), kind, str(cache)]
    row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(row, flush=True)
    return row


def measure(path: str, kind: str, cache: str) -> dict[str, Any]:
    torch.manual_seed(0)
    before, begun = peak_megabytes(), time.perf_counter()
    corpus = load_corpus(path, tokenizer=kind, vocab_size=VOCABULARY.get(kind), cache=cache)
    seconds = time.perf_counter() - begun
    built = peak_megabytes()
    losses = learn(corpus)
    begun = time.perf_counter()
    load_corpus(path, tokenizer=kind, vocab_size=VOCABULARY.get(kind), cache=cache)
    megabytes = Path(path).stat().st_size / 1e6
    return {
        "tokenizer": kind,
        "text_mb": megabytes,
        "symbols": len(corpus.train) + len(corpus.valid) + len(corpus.test),
        "vocabulary": corpus.tokenizer.vocab_size,
        "build_s": seconds,
        "build_mb_per_s": megabytes / seconds,
        "from_cache_s": time.perf_counter() - begun,
        "updates": UPDATES,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "imported_mb": before,
        "built_mb": built,
        "peak_mb": peak_megabytes(),
    }


def learn(corpus: Any) -> list[float]:
    """Return the losses of a few updates of a tiny LSTM."""
    plan = TrainingPlan(TrainingBudget(steps=UPDATES), Optimizer(rate=1e-2, warmup=0.0))
    model = LanguageModel(sized("lstm", corpus.tokenizer.vocab_size, parameters=PARAMETERS))
    batches = Streams(corpus.train, BATCH, STEPS, corpus.ends["train"])
    state, source = TrainingState(model, batches, plan.optimizer.build(model)), iter(batches)
    return [update(state, source, plan, i / UPDATES)["train_loss"] for i in range(UPDATES)]


def peak_megabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    sys.exit(main())
