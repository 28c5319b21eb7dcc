"""How long a trace takes: six models that read the same 64 symbols, and the gradients of one of a million parameters.

python benchmarks/inspecting.py
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

import recollect as rc
from common import save_result
from recollect.inspection.explanation import influence
from recollect.inspection.language_subject import LanguageSubject
from recollect.models.sizes import sized

FAMILIES = ("markov", "rnn", "gru", "lstm", "transformer", "ttt-linear")
TEXT = "It was the best of times, it was the worst of times, it was the "
VOCABULARY = 256
PARTS = 3  # the fastest of so many is the machine's own time, not that of others on it


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    tokenizer = rc.Tokenizer("byte")
    ids = torch.tensor([list(TEXT.encode())])
    assert ids.shape[1] == 64
    rows = []
    for family in FAMILIES:
        model = rc.LanguageModel(sized(family, VOCABULARY, "tiny")).eval()
        if family == "markov":
            model.body.count(ids)
        seconds, busy = [], []
        for _ in range(PARTS):
            begun, worked = time.perf_counter(), time.process_time()
            trace = rc.inspect(model, TEXT, tokenizer=tokenizer)
            text = trace.as_json(units=32)
            seconds.append(time.perf_counter() - begun)
            busy.append(time.process_time() - worked)
        size = len(repr(text))
        parameters = sum(p.numel() for p in model.parameters())
        row = {"what": "trace", "family": family, "parameters": parameters, "json": size}
        rows.append(row | {"seconds": min(seconds), "processor": min(busy)})
        print(rows[-1], flush=True)
    for family in ("lstm", "transformer"):
        rows.append(gradients(family))
    total = sum(row["seconds"] for row in rows if row["what"] == "trace")
    print(f"six traces: {total:.2f} s")
    save_result(Path(__file__).stem, rows, total=total, threads=torch.get_num_threads())


def gradients(family: str) -> dict[str, object]:
    """Return the time of a 64 × 64 map of gradients of a model of about a million parameters."""
    model = rc.LanguageModel(sized(family, VOCABULARY, parameters=1_000_000)).eval()
    subject = LanguageSubject(model, list(TEXT.encode()), list(TEXT))
    seconds, busy = [], []
    for _ in range(PARTS):
        begun, worked = time.perf_counter(), time.process_time()
        reach = influence(subject).reach
        seconds.append(time.perf_counter() - begun)
        busy.append(time.process_time() - worked)
    assert reach.shape == (64, 64)
    parameters = sum(p.numel() for p in model.parameters())
    row = {"what": "gradients", "family": family, "parameters": parameters}
    print(row | {"seconds": min(seconds), "processor": min(busy)}, flush=True)
    return row | {"seconds": min(seconds), "processor": min(busy)}


if __name__ == "__main__":
    main()
