"""Markov beside KenLM: the same perplexities on the same text, the time they take, and a text of ten million tokens.

KenLM's figures are those of lmplz --discount_fallback and query, version 0.3.0, on the files in RECOLLECT_DATA.
"""

from __future__ import annotations

import gzip
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import save_result
from recollect.layers.ngram.markov import Markov

# n: perplexity of the valid and the test part; the end symbol is predicted after each line
KENLM_PTB = {
    2: (199.01805500, 185.70489315),
    3: (157.76525526, 148.28149950),
    4: (149.89555758, 142.71560595),
    5: (148.00739621, 141.18620709),
    6: (147.35667234, 140.83687649),
}
# n: nats per character of the last tenth, the end symbol included. KenLM's query adds up each line in float32, and this
# is one line of 111,541 symbols: its figures are good to about 3e-5.
KENLM_SHAKESPEARE = {4: 1.7191, 5: 1.5613, 6: 1.5227}


def main() -> int:
    folder = os.environ.get("RECOLLECT_DATA")
    if folder is None:
        print("Set RECOLLECT_DATA to the folder that holds ptb/ptb.train.txt.gz and tinyshakespeare/input.txt.")
        return 2
    print(f"{'':34}{'ours':>14}{'KenLM':>14}{'difference':>12}{'count s':>9}{'score s':>9}")
    rows = [*penn_treebank(Path(folder)), *shakespeare(Path(folder)), ten_million()]
    save_result("markov", rows)
    return 0


def penn_treebank(folder: Path) -> list[dict[str, Any]]:
    lines = {part: read_lines(folder / "ptb" / f"ptb.{part}.txt.gz") for part in ("train", "valid", "test")}
    ids = {word: i for i, word in enumerate(sorted({word for line in lines["train"] for word in line}))}
    end, vocab_size = len(ids), len(ids) + 2  # KenLM also reserves an id for a word that never occurs
    parts = {part: pad([[ids[word] for word in line] for line in lines[part]]) for part in lines}
    rows = []
    for n, figures in KENLM_PTB.items():
        model = Markov(vocab_size, n - 1)
        count_s, _ = timed(lambda model=model: model.count(*parts["train"], end=end))
        for part, figure in zip(("valid", "test"), figures, strict=True):
            score_s, scores = timed(lambda model=model, part=part: model.score(*parts[part], end=end))
            tokens = int(parts[part][1].sum()) + len(lines[part])
            name = f"PTB {part} {n}-gram, perplexity"
            rows.append(report(name, float(torch.exp(-scores.sum() / tokens)), figure, count_s, score_s))
    return rows


def shakespeare(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    cut = int(0.9 * len(text))
    ids = {character: i for i, character in enumerate(sorted(set(text[:cut])))}
    end, vocab_size = len(ids), len(ids) + 2
    train, valid = (torch.tensor([[ids[c] for c in part]]) for part in (text[:cut], text[cut:]))
    rows = []
    for n, figure in KENLM_SHAKESPEARE.items():
        model = Markov(vocab_size, n - 1)
        count_s, _ = timed(lambda model=model: model.count(train, end=end))
        score_s, scores = timed(lambda model=model: model.score(valid, end=end))
        rows.append(report(f"tinyshakespeare {n}-gram, nats", float(-scores.mean()), figure, count_s, score_s))
    return rows


def ten_million(tokens: int = 10_000_000, vocab_size: int = 50_000, order: int = 5) -> dict[str, Any]:
    """Time and memory of counting a text drawn by Zipf's law, with independent tokens: many n-grams."""
    weights = 1 / np.arange(1, vocab_size + 1)
    draw = np.random.default_rng(0)
    ids = np.searchsorted(weights.cumsum() / weights.sum(), draw.random(tokens)).clip(max=vocab_size - 1)
    model = Markov(vocab_size, order)
    before = peak_gigabytes()
    count_s, _ = timed(lambda: model.count(torch.from_numpy(ids).reshape(-1, 1000)))
    ngrams = sum(len(buffer) for name, buffer in model.named_buffers() if name.startswith("keys"))
    print(f"{tokens:,} tokens, order {order}: {count_s:.1f} s to count, {ngrams:,} n-grams, ", end="")
    print(f"peak memory {peak_gigabytes():.2f} GB ({before:.2f} before)")
    return {
        "what": "Zipf text, count",
        "tokens": tokens,
        "vocab_size": vocab_size,
        "order": order,
        "ngrams": ngrams,
        "count_s": count_s,
        "peak_gb": peak_gigabytes(),
        "peak_before_gb": before,
    }


def report(what: str, ours: float, kenlm: float, count_s: float, score_s: float) -> dict[str, Any]:
    difference = ours / kenlm - 1
    print(f"{what:34}{ours:14.8f}{kenlm:14.8f}{difference:12.1e}{count_s:9.2f}{score_s:9.2f}")
    return {
        "what": what,
        "ours": ours,
        "kenlm": kenlm,
        "relative_difference": difference,
        "count_s": count_s,
        "score_s": score_s,
    }


def read_lines(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.split() for line in file]


def pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids (B, T) and which of them are real."""
    length = torch.tensor([len(row) for row in rows])
    valid = torch.arange(int(length.max())) < length[:, None]
    ids = torch.zeros(valid.shape, dtype=torch.int64)
    ids[valid] = torch.tensor([i for row in rows for i in row])
    return ids, valid


def timed(work: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    sys.exit(main())
